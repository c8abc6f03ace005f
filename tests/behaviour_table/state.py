"""Requests, state and structured output (A6 to A8)."""

from tests.behaviour_table.row import Row

ROWS: dict[str, Row] = {
    "A6.1": Row(
        "A model request holds model, messages, prompt, tools, settings, state and runtime",
        ("tests/loop/test_requests.py::test_a_request_tells_everything_about_the_call",),
    ),
    "A6.2": Row(
        "`override` returns a copy; the rest keeps its identity",
        (
            "tests/loop/test_requests.py::test_override_copies_and_everything_else_keeps_its_identity",
            "tests/loop/test_requests.py::test_requests_and_responses_cannot_be_changed_in_place",
            "tests/loop/test_requests.py::test_a_field_that_is_not_there_is_refused",
        ),
    ),
    "A6.3": Row(
        (
            "A wrapper can choose another model for one call; the structured answer is asked for "
            "in that model's way"
        ),
        (
            "tests/loop/test_requests.py::test_another_model_is_asked_only_where_it_was_put",
            "tests/loop/test_structured_answers.py::test_a_wrapper_that_swaps_the_model_changes_how_it_is_asked",
        ),
    ),
    "A6.4": Row(
        "A wrapper can choose the tools of one call; a tool that nothing could run is refused",
        (
            "tests/loop/test_requests.py::test_tools_are_offered_as_chosen_per_call",
            "tests/loop/test_wrap_tool_call.py::test_a_tool_that_nobody_would_run_is_not_offered",
            "tests/loop/test_wrap_tool_call.py::test_a_tool_may_be_offered_by_one_wrapper_and_supplied_by_another",
        ),
    ),
    "A6.5": Row(
        "A wrapper can narrow the schemas of the structured answer, never widen them",
        (
            "tests/loop/test_structured_runs.py::test_a_wrapper_narrows_what_one_call_may_answer",
            "tests/loop/test_structured_runs.py::test_a_wrapper_cannot_bring_a_schema_of_its_own",
            "tests/test_structured_output.py::test_a_schema_that_was_not_declared_is_refused",
        ),
    ),
    "A6.6": Row(
        "Model settings can be set for one call",
        (
            "tests/loop/test_requests.py::test_settings_choice_and_message_marks_arrive",
            "tests/models/test_anthropic_requests.py::test_settings_of_the_request_win_over_the_models",
        ),
        differs="Cache marks are fields of their own, not settings.",
    ),
    "A6.7": Row(
        "Models are made from names, and a run can configure them",
        (
            "tests/models/test_registry.py::test_a_full_name_gives_the_providers_model",
            "tests/models/test_registry.py::test_a_bare_claude_id_is_anthropics",
            "tests/models/test_configurable.py::test_a_prefix_tells_the_models_of_a_run_apart",
            "tests/models/test_configurable.py::test_any_lets_a_run_set_everything",
            "tests/loop/test_factory.py::test_a_run_chooses_the_model_and_a_wrapper_may_choose_another",
        ),
    ),
    "A6.8": Row(
        "Tools of middleware come before the caller's",
        (
            "tests/loop/test_rows_gaps.py::test_tools_of_middleware_come_before_those_of_the_caller",
            "tests/loop/test_factory.py::test_what_makes_no_sense_is_refused_when_the_agent_is_built",
        ),
        differs=(
            "Two tools of one name are refused; in LangChain the later one silently replaces the "
            "other."
        ),
    ),
    "A6.9": Row(
        "A tool may return text, data, content blocks, a message, a Command, or several of them",
        (
            "tests/loop/test_tool_returns.py::test_a_tool_has_one_result_whatever_it_returns",
            "tests/loop/test_tool_returns.py::test_what_cannot_be_kept_is_an_error_result_and_the_thread_stays_usable",
            "tests/loop/test_tool_returns.py::test_calls_that_tools_send_run_next_in_call_order_through_the_gate",
            "tests/tools/test_results.py::test_values_become_what_a_model_can_read",
            "tests/tools/test_functions.py::test_content_and_artifact_are_two_values_of_one_return",
        ),
        differs=(
            "No command to a parent graph: a subagent gives its parent a result and the state they "
            "share."
        ),
    ),
    "A7.1": Row(
        "Every agent has the state key `messages`",
        (
            "tests/loop/test_structured_runs.py::test_the_value_can_be_set_by_an_author_but_not_by_input",
            "tests/loop/test_state.py::test_a_key_of_the_loop_declared_in_another_way_is_refused_by_name",
            "tests/loop/test_hooks.py::test_a_jump_holds_for_one_step_and_leaves_no_trace_in_the_state",
            "tests/loop/test_tool_returns.py::test_calls_that_tools_send_run_next_in_call_order_through_the_gate",
        ),
        differs=(
            "jump_to is not a state key, structured_response exists only with a response_format, "
            "and calls that tools send are in a private key."
        ),
    ),
    "A7.2": Row(
        "Marks keep a state key out of input, output, or both",
        (
            "tests/loop/test_state.py::test_marks_say_who_sees_a_key_and_how_long_it_lives",
            "tests/loop/test_state.py::test_wrong_input_is_refused_before_anything_is_stored",
            "tests/loop/test_state.py::test_tools_see_private_keys_and_may_write_them",
        ),
    ),
    "A7.3": Row(
        "Marks make a state key last for the run and never be stored",
        (
            "tests/loop/test_state.py::test_marks_say_who_sees_a_key_and_how_long_it_lives",
            "tests/loop/test_streams.py::test_state_that_is_not_stored_need_not_be_data",
        ),
    ),
    "A7.4": Row(
        "State schemas are merged; the last one wins",
        (
            "tests/loop/test_state.py::test_schemas_are_merged_and_the_callers_wins_over_middleware",
            "tests/loop/test_state.py::test_a_wrong_schema_is_refused_when_the_agent_is_built",
        ),
    ),
    "A7.5": Row(
        "Messages are added, replaced and removed by id",
        (
            "tests/test_messages.py::test_adding_keeps_one_message_per_id_in_order_of_first_appearance",
            "tests/test_messages.py::test_removing",
            "tests/loop/test_state.py::test_messages_are_added_replaced_and_removed_by_id_from_outside",
            "tests/loop/test_state.py::test_ids_are_made_up_kept_in_storage_and_stable_across_runs",
            "tests/loop/test_run_input.py::test_a_run_begins_with_a_text_messages_or_a_state_update",
        ),
        differs=(
            "Text and role/content mappings are accepted as input only. There is one message form, "
            "so no `format`."
        ),
    ),
    "A7.6": Row(
        "`Overwrite` bypasses the reducer, once per step",
        (
            "tests/loop/test_state.py::test_an_overwrite_replaces_what_was_written_before_it",
            "tests/loop/test_state.py::test_of_two_overwrites_in_one_answer_the_later_call_gets_an_error",
        ),
        differs=(
            "Only writes before it in call order are dropped. A second one becomes an error "
            "result. No JSON form."
        ),
    ),
    "A7.7": Row(
        "Two parallel tools that write one plain key conflict",
        (
            "tests/loop/test_routing.py::test_of_parallel_writers_of_a_plain_key_the_one_that_finishes_second_gets_an_error",
        ),
        differs="The call that finishes second gets an error result; in LangGraph the run ends.",
    ),
    "A7.8": Row(
        "State keys have different kinds of channels",
        (
            "tests/loop/test_state.py::test_marks_say_who_sees_a_key_and_how_long_it_lives",
            "tests/loop/test_state.py::test_parallel_writes_join_in_call_order",
            "tests/loop/test_rows_gaps.py::test_a_hook_can_see_what_remains_of_the_runs_limits",
        ),
        differs=(
            "Last value, a reducer, or a mark. `runtime.meter` shows what a run may still use. No "
            "barriers: there is no graph."
        ),
    ),
    "A7.9": Row(
        "Results of parallel calls are in call order, whichever finishes first",
        (
            "tests/loop/test_state.py::test_parallel_writes_join_in_call_order",
            "tests/loop/test_routing.py::test_results_are_in_call_order_though_the_calls_finish_in_another",
        ),
    ),
    "A8.1": Row(
        (
            "The automatic strategy uses the provider's structured output where model and schema "
            "allow it, tools otherwise"
        ),
        (
            "tests/test_structured_output.py::test_auto_decides_by_the_model_that_is_asked",
            "tests/test_structured_output.py::test_auto_takes_tools_for_a_schema_no_provider_can_enforce",
            "tests/models/test_anthropic_output.py::test_families_that_have_native_output_say_so",
        ),
    ),
    "A8.2": Row(
        "The provider's structured output is parsed into the schema",
        (
            "tests/test_structured_output.py::test_a_native_answer_that_does_not_fit_is_repaired_and_bounded",
            "tests/loop/test_structured_answers.py::test_a_model_with_native_output_is_held_to_the_schema_instead",
            "tests/loop/test_structured_answers.py::test_a_strategy_the_model_cannot_do_fails_before_it_is_asked",
        ),
        differs=(
            "An answer that does not fit is repaired; LangChain raises. No `strict`: the schema is "
            "always enforced."
        ),
    ),
    "A8.3": Row(
        "The tool strategy has one tool for each schema of a union",
        (
            "tests/test_structured_output.py::test_a_union_is_one_tool_for_each_member",
            "tests/test_structured_output.py::test_one_of_at_the_top_of_a_json_schema_is_one_tool_for_each_member",
            "tests/loop/test_structured_answers.py::test_after_work_with_tools_the_answer_ends_the_run",
            "tests/loop/test_structured_answers.py::test_texts_of_ones_own_reach_the_model_and_the_transcript",
        ),
    ),
    "A8.4": Row(
        "`handle_errors` decides what happens to an answer that does not fit",
        (
            "tests/test_structured_output.py::test_a_text_of_ones_own_replaces_ours",
            "tests/test_structured_output.py::test_only_the_named_kinds_of_error_are_repaired",
            "tests/test_structured_output.py::test_without_repair_errors_are_raised_at_once",
            "tests/loop/test_structured_answers.py::test_without_repair_the_kind_of_error_says_what_was_wrong",
        ),
        differs=(
            "A failure is the result of the run (status failed, typed error); nothing is raised."
        ),
    ),
    "A8.5": Row(
        "The number of repairs is bounded, and the failure holds the last attempt",
        (
            "tests/loop/test_structured_answers.py::test_repair_is_bounded_and_the_failure_holds_the_last_attempt",
            "tests/loop/test_structured_answers.py::test_so_many_repairs_are_allowed_as_is_said",
            "tests/loop/test_structured_runs.py::test_the_count_of_repairs_survives_a_restart",
        ),
        differs="LangChain repeats up to the recursion limit.",
    ),
    "A8.6": Row(
        "An answer in prose is followed by one forced call, then by an error",
        (
            "tests/loop/test_structured_answers.py::test_prose_is_followed_by_one_forced_call",
            "tests/loop/test_structured_answers.py::test_repair_is_bounded_and_the_failure_holds_the_last_attempt",
            "tests/test_structured_output.py::test_prose_is_answered_by_one_forced_call",
        ),
        differs="In LangChain the run ends without a structured answer, or repeats forever.",
    ),
    "A8.7": Row(
        "JSON schemas are validated like types",
        (
            "tests/test_structured_output.py::test_what_does_not_fit_is_repaired_whatever_the_schema",
            "tests/test_structured_output.py::test_problems_are_named_by_place",
        ),
        differs="LangChain does not validate them.",
    ),
    "A8.8": Row(
        "A structured answer of an earlier turn is never taken for the new one",
        (
            "tests/loop/test_structured_runs.py::test_an_answer_of_an_earlier_turn_does_not_end_or_answer_the_next",
            "tests/loop/test_structured_runs.py::test_a_turn_that_ends_before_the_model_has_no_answer",
        ),
    ),
}
