"""Requests, state and structured output (A6 to A8)."""

from tests.behaviour_table.row import Row

ROWS: dict[str, Row] = {
    "A6.1": Row(
        "what a model request tells",
        ("tests/loop/test_requests.py::test_a_request_tells_everything_about_the_call",),
    ),
    "A6.2": Row(
        "override copies and leaves the rest as it is",
        (
            "tests/loop/test_requests.py::test_override_copies_and_everything_else_keeps_its_identity",
            "tests/loop/test_requests.py::test_requests_and_responses_cannot_be_changed_in_place",
            "tests/loop/test_requests.py::test_a_field_that_is_not_there_is_refused",
        ),
    ),
    "A6.3": Row(
        "another model per call, asked in its own way",
        (
            "tests/loop/test_requests.py::test_another_model_is_asked_only_where_it_was_put",
            "tests/loop/test_structured_answers.py::test_a_wrapper_that_swaps_the_model_changes_how_it_is_asked",
        ),
    ),
    "A6.4": Row(
        "tools chosen per call; one that nobody would run is refused",
        (
            "tests/loop/test_requests.py::test_tools_are_offered_as_chosen_per_call",
            "tests/loop/test_wrap_tool_call.py::test_a_tool_that_nobody_would_run_is_not_offered",
            "tests/loop/test_wrap_tool_call.py::test_a_tool_may_be_offered_by_one_wrapper_and_supplied_by_another",
        ),
    ),
    "A6.5": Row(
        "a call may narrow the declared schemas, never widen them",
        (
            "tests/loop/test_structured_runs.py::test_a_wrapper_narrows_what_one_call_may_answer",
            "tests/loop/test_structured_runs.py::test_a_wrapper_cannot_bring_a_schema_of_its_own",
            "tests/test_structured_output.py::test_a_schema_that_was_not_declared_is_refused",
        ),
    ),
    "A6.6": Row(
        "settings per call",
        (
            "tests/loop/test_requests.py::test_settings_choice_and_message_marks_arrive",
            "tests/models/test_anthropic_requests.py::test_settings_of_the_request_win_over_the_models",
        ),
        differs="Cache marks are fields of their own, not settings.",
    ),
    "A6.7": Row(
        "models by name, configurable by a run",
        (
            "tests/models/test_registry.py::test_a_full_name_gives_the_providers_model",
            "tests/models/test_registry.py::test_a_bare_claude_id_is_anthropics",
            "tests/models/test_configurable.py::test_a_prefix_tells_the_models_of_a_run_apart",
            "tests/models/test_configurable.py::test_any_lets_a_run_set_everything",
            "tests/loop/test_factory.py::test_a_run_chooses_the_model_and_a_wrapper_may_choose_another",
        ),
    ),
    "A6.8": Row(
        "middleware's tools come first; two of one name are refused",
        (
            "tests/loop/test_rows_gaps.py::test_tools_of_middleware_come_before_those_of_the_caller",
            "tests/loop/test_factory.py::test_what_makes_no_sense_is_refused_when_the_agent_is_built",
        ),
    ),
    "A6.9": Row(
        "what a tool may return",
        (
            "tests/loop/test_tool_returns.py::test_a_tool_has_one_result_whatever_it_returns",
            "tests/loop/test_tool_returns.py::test_what_cannot_be_kept_is_an_error_result_and_the_thread_stays_usable",
            "tests/loop/test_tool_returns.py::test_calls_that_tools_send_run_next_in_call_order_through_the_gate",
            "tests/tools/test_results.py::test_values_become_what_a_model_can_read",
            "tests/tools/test_functions.py::test_content_and_artifact_are_two_values_of_one_return",
        ),
        differs=(
            "No command to a parent graph: a subagent gives its parent a result and its shared "
            "state."
        ),
    ),
    "A7.1": Row(
        "the keys every agent has",
        (
            "tests/loop/test_structured_runs.py::test_the_value_can_be_set_by_an_author_but_not_by_input",
            "tests/loop/test_hooks.py::test_a_jump_holds_for_one_step_and_leaves_no_trace_in_the_state",
            "tests/loop/test_tool_returns.py::test_calls_that_tools_send_run_next_in_call_order_through_the_gate",
        ),
        differs=(
            "messages and a private key for sent calls; jump_to is no key; structured_response "
            "only with a format."
        ),
    ),
    "A7.2": Row(
        "marks that keep a key out of input or output",
        (
            "tests/loop/test_state.py::test_marks_say_who_sees_a_key_and_how_long_it_lives",
            "tests/loop/test_state.py::test_wrong_input_is_refused_before_anything_is_stored",
            "tests/loop/test_state.py::test_tools_see_private_keys_and_may_write_them",
        ),
    ),
    "A7.3": Row(
        "keys that live for the run and are never stored",
        (
            "tests/loop/test_state.py::test_marks_say_who_sees_a_key_and_how_long_it_lives",
            "tests/loop/test_streams.py::test_state_that_is_not_stored_need_not_be_data",
        ),
    ),
    "A7.4": Row(
        "schemas are merged, the last wins",
        (
            "tests/loop/test_state.py::test_schemas_are_merged_and_the_callers_wins_over_middleware",
            "tests/loop/test_state.py::test_a_wrong_schema_is_refused_when_the_agent_is_built",
        ),
    ),
    "A7.5": Row(
        "messages are added, replaced and removed by id",
        (
            "tests/test_messages.py::test_adding_keeps_one_message_per_id_in_order_of_first_appearance",
            "tests/test_messages.py::test_removing",
            "tests/loop/test_state.py::test_messages_are_added_replaced_and_removed_by_id_from_outside",
            "tests/loop/test_state.py::test_ids_are_made_up_kept_in_storage_and_stable_across_runs",
            "tests/loop/test_run_input.py::test_a_run_begins_with_a_text_messages_or_a_state_update",
        ),
        differs=(
            "Texts and role/content mappings are taken as input only; there is one message form, "
            "so no `format`."
        ),
    ),
    "A7.6": Row(
        "Overwrite goes past the reducer, once per step",
        (
            "tests/loop/test_state.py::test_an_overwrite_replaces_what_was_written_before_it",
            "tests/loop/test_state.py::test_of_two_overwrites_in_one_answer_the_later_call_gets_an_error",
        ),
        differs=(
            "Only writes before it in call order are dropped; a second one is an error result; no "
            "JSON form."
        ),
    ),
    "A7.7": Row(
        "two parallel writers of a plain key",
        (
            "tests/loop/test_routing.py::test_parallel_writers_of_a_plain_key_the_later_call_gets_an_error",
        ),
        differs="The call that finishes second gets an error result instead of the run ending.",
    ),
    "A7.8": Row(
        "kinds of channels",
        (
            "tests/loop/test_state.py::test_marks_say_who_sees_a_key_and_how_long_it_lives",
            "tests/loop/test_state.py::test_parallel_writes_join_in_call_order",
            "tests/loop/test_rows_gaps.py::test_a_hook_can_see_what_remains_of_the_runs_limits",
        ),
        differs=(
            "Last value, a reducer, or a mark; what remains of the run is in runtime.meter. "
            "Barriers need a graph."
        ),
    ),
    "A7.9": Row(
        "results of parallel calls are in call order",
        (
            "tests/loop/test_state.py::test_parallel_writes_join_in_call_order",
            "tests/loop/test_routing.py::test_results_are_in_call_order_though_the_calls_finish_in_another",
        ),
    ),
    "A8.1": Row(
        "auto asks natively where model and schema allow it",
        (
            "tests/test_structured_output.py::test_auto_decides_by_the_model_that_is_asked",
            "tests/test_structured_output.py::test_auto_takes_tools_for_a_schema_no_provider_can_enforce",
            "tests/models/test_anthropic_output.py::test_families_that_have_native_output_say_so",
        ),
    ),
    "A8.2": Row(
        "native answers that do not fit are repaired",
        (
            "tests/test_structured_output.py::test_a_native_answer_that_does_not_fit_is_repaired_and_bounded",
            "tests/loop/test_structured_answers.py::test_a_model_with_native_output_is_held_to_the_schema_instead",
            "tests/loop/test_structured_answers.py::test_a_strategy_the_model_cannot_do_fails_before_it_is_asked",
        ),
        differs="No `strict`: native output is always held to the schema.",
    ),
    "A8.3": Row(
        "one tool for each schema",
        (
            "tests/test_structured_output.py::test_a_union_is_one_tool_for_each_member",
            "tests/test_structured_output.py::test_one_of_at_the_top_of_a_json_schema_is_one_tool_for_each_member",
            "tests/loop/test_structured_answers.py::test_after_work_with_tools_the_answer_ends_the_run",
            "tests/loop/test_structured_answers.py::test_texts_of_ones_own_reach_the_model_and_the_transcript",
        ),
    ),
    "A8.4": Row(
        "what happens with an answer that does not fit",
        (
            "tests/test_structured_output.py::test_a_text_of_ones_own_replaces_ours",
            "tests/test_structured_output.py::test_only_the_named_kinds_of_error_are_repaired",
            "tests/test_structured_output.py::test_without_repair_errors_are_raised_at_once",
            "tests/loop/test_structured_answers.py::test_without_repair_the_kind_of_error_says_what_was_wrong",
        ),
        differs=(
            "A failure is the result of the run (status failed, typed error), not raised from it."
        ),
    ),
    "A8.5": Row(
        "repair is bounded, and the failure holds the last attempt",
        (
            "tests/loop/test_structured_answers.py::test_repair_is_bounded_and_the_failure_holds_the_last_attempt",
            "tests/loop/test_structured_answers.py::test_so_many_repairs_are_allowed_as_is_said",
            "tests/loop/test_structured_runs.py::test_the_count_of_repairs_survives_a_restart",
        ),
    ),
    "A8.6": Row(
        "prose is followed by one forced call, then an error",
        (
            "tests/loop/test_structured_answers.py::test_prose_is_followed_by_one_forced_call",
            "tests/loop/test_structured_answers.py::test_repair_is_bounded_and_the_failure_holds_the_last_attempt",
            "tests/test_structured_output.py::test_prose_is_answered_by_one_forced_call",
        ),
    ),
    "A8.7": Row(
        "JSON schemas are validated like types",
        (
            "tests/test_structured_output.py::test_what_does_not_fit_is_repaired_whatever_the_schema",
            "tests/test_structured_output.py::test_problems_are_named_by_place",
        ),
    ),
    "A8.8": Row(
        "an answer of an earlier turn is never taken for the new one",
        (
            "tests/loop/test_structured_runs.py::test_an_answer_of_an_earlier_turn_does_not_end_or_answer_the_next",
            "tests/loop/test_structured_runs.py::test_a_turn_that_ends_before_the_model_has_no_answer",
        ),
    ),
}
