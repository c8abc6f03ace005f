"""The loop: nodes and edges, jumps, hooks and wraps (A3 to A5)."""

from tests.behaviour_table.row import Row

ROWS: dict[str, Row] = {
    "A3.1": Row(
        "All hooks of one phase share one step; a phase that changes nothing stores nothing",
        (
            "tests/loop/test_hooks.py::test_hooks_of_one_phase_see_what_the_earlier_ones_wrote_and_share_a_step",
            "tests/loop/test_routing.py::test_a_hook_that_changes_nothing_commits_nothing",
            "tests/loop/test_rows_gaps.py::test_steps_are_numbered_along_the_thread_and_hooks_of_a_phase_are_at_most_one",
        ),
        differs="In LangGraph every hook is a step of its own.",
    ),
    "A3.2": Row(
        "A run starts at the first before_agent, or else before_model, or else the model",
        (
            "tests/loop/test_drawing.py::test_a_small_agent",
            "tests/loop/test_drawing.py::test_a_model_alone_asks_once",
            "tests/loop/test_drawing.py::test_a_run_walks_along_the_edges_of_the_picture",
            "tests/loop/test_hooks.py::test_hooks_of_any_stack_run_as_an_onion",
        ),
    ),
    "A3.3": Row(
        "After the tools the loop continues at before_model, not at before_agent",
        (
            "tests/loop/test_drawing.py::test_after_the_tools_the_loop_begins_again_without_the_hooks_of_the_run",
            "tests/loop/test_routing.py::test_hooks_run_as_an_onion_and_agent_hooks_once_per_run",
        ),
    ),
    "A3.4": Row(
        "after_model hooks run last to first",
        (
            "tests/loop/test_drawing.py::test_the_first_of_the_list_is_outermost",
            "tests/loop/test_hooks.py::test_hooks_of_any_stack_run_as_an_onion",
        ),
    ),
    "A3.5": Row(
        "A run leaves the loop through the last after_agent",
        (
            "tests/loop/test_drawing.py::test_the_first_of_the_list_is_outermost",
            "tests/loop/test_drawing.py::test_a_declared_jump_leads_where_the_loop_would_go",
        ),
    ),
    "A3.6": Row(
        "before_agent hooks run in list order, once per run",
        (
            "tests/loop/test_hooks.py::test_agent_hooks_run_again_for_the_next_run_on_the_thread",
            "tests/loop/test_hooks.py::test_a_run_that_waited_does_not_begin_again",
            "tests/loop/test_drawing.py::test_the_first_of_the_list_is_outermost",
        ),
    ),
    "A3.7": Row(
        "after_agent hooks run last to first",
        (
            "tests/loop/test_routing.py::test_hooks_run_as_an_onion_and_agent_hooks_once_per_run",
            "tests/loop/test_hooks.py::test_hooks_of_any_stack_run_as_an_onion",
        ),
    ),
    "A3.8": Row(
        (
            "After a model answer: open calls go to the tools, calls that hooks answered go back "
            "to the model, anything else ends the run"
        ),
        (
            "tests/loop/test_hooks.py::test_model_means_through_before_model_again",
            "tests/loop/test_hooks.py::test_calls_that_a_hook_answered_go_back_to_the_model_without_running",
            "tests/loop/test_rows_gaps.py::test_a_run_without_an_answer_left_ends",
            "tests/loop/test_factory.py::test_without_tools_the_model_is_asked_once",
            "tests/loop/test_structured_answers.py::test_of_an_answer_only_the_calls_that_no_hook_answered_run",
            "tests/loop/test_structured_answers.py::test_after_work_with_tools_the_answer_ends_the_run",
            "tests/loop/test_structured_answers.py::test_an_answer_beside_a_call_lets_the_call_run_and_ends_the_run",
        ),
    ),
    "A3.9": Row(
        (
            "After the tools: direct tools and structured answers end the run, anything else goes "
            "back to the model"
        ),
        (
            "tests/loop/test_tool_returns.py::test_only_direct_tools_together_end_the_run",
            "tests/loop/test_tool_returns.py::test_a_call_turned_into_a_direct_tool_counts_as_that_tool",
            "tests/loop/test_structured_answers.py::test_an_answer_beside_a_call_lets_the_call_run_and_ends_the_run",
            "tests/loop/test_structured_answers.py::test_a_refused_answer_beside_a_call_goes_back_to_the_model_with_its_result",
        ),
    ),
    "A3.10": Row(
        "Structured output without tools asks the model again",
        (
            "tests/loop/test_structured_answers.py::test_repair_is_bounded_and_the_failure_holds_the_last_attempt",
            "tests/loop/test_drawing.py::test_structured_output_is_an_end_of_its_own",
        ),
        differs="The number of repairs is bounded; in LangChain it is not.",
    ),
    "A3.11": Row(
        "Without tools and `response_format` the model is asked once",
        (
            "tests/loop/test_factory.py::test_without_tools_the_model_is_asked_once",
            "tests/loop/test_drawing.py::test_a_model_alone_asks_once",
        ),
    ),
    "A3.12": Row(
        "A graph has a tools node only if there are tools, or middleware that wraps tool calls",
        (
            "tests/loop/test_drawing.py::test_tools_are_drawn_when_something_could_lead_there",
            "tests/loop/test_routing.py::test_a_wrong_jump_is_an_error_that_names_the_hook",
            "tests/loop/test_routing.py::test_calls_of_an_agent_without_tools_are_answered",
            "tests/loop/test_hooks.py::test_calls_that_a_hook_wrote_may_be_jumped_to",
        ),
        differs=(
            "The tools can always be reached. A jump there without an open call is an error that "
            "names the hook."
        ),
    ),
    "A3.13": Row(
        "Open calls are found by id, and a step stores what it adds, not the whole state",
        (
            "tests/test_messages.py::test_pending_calls_are_those_of_the_last_answer_without_a_result",
            "tests/loop/test_durability.py::test_a_round_stores_what_it_adds_however_long_the_thread_is",
            "tests/checkpoint/test_committers.py::test_a_thousand_steps_take_room_in_proportion_to_their_data",
        ),
    ),
    "A3.14": Row(
        "Calls that cannot be parsed are answered at once, and the model tries again",
        (
            "tests/loop/test_routing.py::test_arguments_that_are_not_json_are_answered_at_once",
            "tests/models/test_anthropic_answers.py::test_arguments_that_are_no_json_object_come_back_as_an_invalid_call",
        ),
        differs="In LangChain the run ends silently.",
    ),
    "A3.15": Row(
        "A call of an unknown tool is answered with the names of the tools",
        (
            "tests/loop/test_routing.py::test_results_are_in_call_order_and_a_failing_tool_is_a_result",
            "tests/loop/test_factory.py::test_only_the_named_tools_are_offered_and_run",
        ),
    ),
    "A3.16": Row(
        "A tool that raises gives an error result; only a tool marked `strict` ends the run",
        (
            "tests/loop/test_routing.py::test_results_are_in_call_order_and_a_failing_tool_is_a_result",
            "tests/loop/test_tool_policies.py::test_a_strict_tool_ends_the_run_and_what_finished_beside_it_is_kept",
        ),
        differs="In LangChain any exception ends the run, except for invalid arguments.",
    ),
    "A3.17": Row(
        "A `return_direct` tool called with wrong arguments does not end the run",
        ("tests/loop/test_routing.py::test_return_direct_ends_the_run_unless_it_failed",),
        differs="In LangChain the run ends with the validation error as its answer.",
    ),
    "A3.18": Row(
        "A `return_direct` tool called beside another tool goes back to the model",
        ("tests/loop/test_tool_returns.py::test_only_direct_tools_together_end_the_run",),
    ),
    "A3.19": Row(
        "A structured answer beside a tool call: the call runs, then the run ends",
        (
            "tests/loop/test_structured_answers.py::test_an_answer_beside_a_call_lets_the_call_run_and_ends_the_run",
            "tests/loop/test_structured_answers.py::test_an_answer_beside_a_call_that_waits_is_kept_until_the_run_ends",
        ),
    ),
    "A3.20": Row(
        "Endless runs are stopped",
        (
            "tests/loop/test_durability.py::test_a_run_that_reaches_a_limit_ends_with_the_reason_and_paired_calls",
            "tests/test_limits.py::test_a_met_limit_says_what_was_used_and_what_to_do",
            "tests/test_limits.py::test_calls_are_bounded_unless_a_run_says_otherwise",
        ),
        differs=(
            "Calls are limited, not steps: 200 model and 1,000 tool calls by default. The run "
            "fails with a typed reason."
        ),
    ),
    "A4.1": Row(
        "A hook can jump to `tools`, `model` and `end`; anything else is an error",
        (
            "tests/loop/test_routing.py::test_a_wrong_jump_is_an_error_that_names_the_hook",
            "tests/loop/test_hooks.py::test_end_skips_the_rest_of_the_phase_but_not_after_agent",
            "tests/loop/test_hooks.py::test_model_means_through_before_model_again",
            "tests/loop/test_hooks.py::test_calls_that_a_hook_wrote_may_be_jumped_to",
            "tests/loop/test_decorators.py::test_only_hooks_that_can_jump_take_can_jump_to",
        ),
    ),
    "A4.2": Row(
        "A jump lasts for one step and is not part of the state",
        (
            "tests/loop/test_hooks.py::test_a_jump_holds_for_one_step_and_leaves_no_trace_in_the_state",
        ),
    ),
    "A4.3": Row(
        "Jumps are declared on the hook",
        (
            "tests/loop/test_decorators.py::test_jumps_belong_to_one_use_of_a_function",
            "tests/loop/test_decorators.py::test_hooks_are_found_however_they_are_set",
            "tests/loop/test_drawing.py::test_a_declared_jump_leads_where_the_loop_would_go",
        ),
    ),
    "A4.4": Row(
        "A jump that is not declared is an error that names the hook",
        ("tests/loop/test_routing.py::test_a_wrong_jump_is_an_error_that_names_the_hook",),
        differs="LangChain ignores it in most hooks and follows it in some.",
    ),
    "A4.5": Row(
        "A jump from before_model to `model` is an error that names the hook",
        (
            "tests/loop/test_routing.py::test_a_wrong_jump_is_an_error_that_names_the_hook",
            "tests/loop/test_drawing.py::test_a_jump_the_loop_refuses_is_not_drawn",
        ),
        differs="LangChain raises a KeyError.",
    ),
    "A4.6": Row(
        "A jump from after_agent to `end` ends the run",
        ("tests/loop/test_routing.py::test_after_agent_jump_to_end_skips_the_hooks_that_are_left",),
        differs=(
            "It ends at once; the remaining after_agent hooks are skipped. In LangChain it repeats "
            "itself up to the recursion limit."
        ),
    ),
    "A4.7": Row(
        "A jump from after_agent to `model` sends the work back",
        ("tests/loop/test_routing.py::test_after_agent_may_send_the_run_back_to_the_model",),
    ),
    "A4.8": Row(
        "A jump from before_agent to `tools` runs calls that the hook wrote",
        ("tests/loop/test_hooks.py::test_calls_that_a_hook_wrote_may_be_jumped_to",),
    ),
    "A4.9": Row(
        "A jump from after_model to `end` skips the remaining after_model hooks",
        ("tests/loop/test_hooks.py::test_end_skips_the_rest_of_the_phase_but_not_after_agent",),
    ),
    "A4.10": Row(
        "A jump to `tools` never runs a call that was rejected",
        (
            "tests/loop/test_gate.py::test_jump_to_tools_does_not_run_a_rejected_call",
            "tests/loop/test_gate_attacks.py::test_a_rejected_call_has_its_result_so_jumping_back_to_it_is_an_error",
            "tests/loop/test_gate_attacks.py::test_a_call_that_a_hook_injects_and_jumps_to_is_judged",
        ),
        differs="LangChain runs every call of the last answer.",
    ),
    "A4.11": Row(
        "A wrapper of the model call cannot jump",
        ("tests/loop/test_wrap_model_call.py::test_nonsense_fails_the_run_and_names_the_wrapper",),
    ),
    "A5.1": Row(
        (
            "before and after hooks get the state and the runtime, and return a state update; a "
            "key that nobody declared is an error"
        ),
        (
            "tests/loop/test_hooks.py::test_nonsense_fails_the_run_by_the_hooks_name_and_the_thread_goes_on",
            "tests/loop/test_hooks.py::test_hooks_of_one_phase_see_what_the_earlier_ones_wrote_and_share_a_step",
            "tests/loop/test_hooks.py::test_the_runtime_tells_where_the_run_is_and_takes_events",
            "tests/loop/test_routing.py::test_an_undeclared_state_key_is_an_error_naming_the_hook",
            "tests/loop/test_streams.py::test_custom_events_come_from_hooks_wraps_and_tools",
            "tests/loop/test_decorators.py::test_decorated_functions_run_where_their_hooks_do",
        ),
        differs=(
            "LangChain drops undeclared keys silently. Here arguments are passed by position, "
            "there is no `config`, and jump_to is the only way to jump."
        ),
    ),
    "A5.2": Row(
        "wrap hooks nest, the first outermost, and may call the handler any number of times",
        (
            "tests/loop/test_hooks.py::test_hooks_of_any_stack_run_as_an_onion",
            "tests/loop/test_wrap_model_call.py::test_a_wrapper_may_try_again_until_the_model_answers",
            "tests/loop/test_wrap_model_call.py::test_a_wrapper_may_answer_without_the_model_and_inner_ones_are_not_asked",
            "tests/loop/test_wrap_tool_call.py::test_three_wrappers_nest_and_each_may_change_the_result",
            "tests/loop/test_wrap_tool_call.py::test_a_wrapper_may_try_again_while_siblings_keep_their_results",
        ),
    ),
    "A5.3": Row(
        (
            "A model wrapper may return state updates: inner ones are applied first, those of "
            "repeated attempts are dropped"
        ),
        (
            "tests/loop/test_wrap_model_call.py::test_updates_are_made_inner_first",
            "tests/loop/test_wrap_model_call.py::test_updates_of_an_attempt_that_was_repeated_are_dropped_with_it",
            "tests/loop/test_wrap_model_call.py::test_an_answer_of_ones_own_may_bring_updates",
            "tests/loop/test_wrap_model_call.py::test_a_wrapper_may_answer_without_the_model_and_inner_ones_are_not_asked",
        ),
        differs="ExtendedModelResponse carries an update, not a command.",
    ),
    "A5.4": Row(
        "Updates of model wrappers follow the answer, in the same checkpoint",
        (
            "tests/loop/test_wrap_model_call.py::test_messages_of_an_update_follow_the_answer",
            "tests/loop/test_wrap_model_call.py::test_answer_and_updates_are_one_checkpoint",
            "tests/loop/test_wrap_model_call.py::test_two_wrappers_that_write_one_plain_key_fail_the_run_and_both_are_named",
        ),
    ),
    "A5.5": Row(
        "A tool wrapper gets the call, tool, state and runtime, and returns a result or a Command",
        (
            "tests/loop/test_wrap_tool_call.py::test_a_wrapper_sees_call_tool_state_and_runtime",
            "tests/loop/test_wrap_tool_call.py::test_a_command_of_a_wrapper_brings_state_and_the_result",
            "tests/loop/test_wrap_tool_call.py::test_a_wrapper_that_returns_nonsense_ends_the_run_by_name",
            "tests/loop/test_requests.py::test_a_tool_call_request_is_a_copy_too_and_does_not_touch_the_transcript",
        ),
    ),
    "A5.6": Row(
        "Sync and async hooks have the same name and can be mixed, with or without an event loop",
        (
            "tests/loop/test_sync_wraps.py::test_sync_and_async_wraps_nest_in_any_order",
            "tests/loop/test_sync_wraps.py::test_the_same_wraps_work_without_an_event_loop",
            "tests/loop/test_hooks.py::test_hooks_of_any_stack_run_as_an_onion",
            "tests/loop/test_decorators.py::test_what_would_be_ignored_is_refused_by_name",
        ),
        differs="In LangChain a sync wrapper fails in an async run, and the other way round.",
    ),
    "A5.7": Row(
        "Hooks are found wherever they are defined, on the instance too",
        (
            "tests/loop/test_decorators.py::test_hooks_are_found_however_they_are_set",
            "tests/loop/test_decorators.py::test_a_hook_that_is_the_bases_own_does_not_count",
        ),
        differs="LangChain does not find hooks that are set on an instance.",
    ),
    "A5.8": Row(
        "Middleware has hooks, tools, a name and a state schema; misspelt hooks are refused",
        (
            "tests/loop/test_decorators.py::test_options_of_a_decorator",
            "tests/loop/test_rows_gaps.py::test_tools_of_middleware_come_before_those_of_the_caller",
            "tests/loop/test_state.py::test_schemas_are_merged_and_the_callers_wins_over_middleware",
            "tests/loop/test_decorators.py::test_what_would_be_ignored_is_refused_by_name",
            "tests/loop/test_decorators.py::test_misspelt_names_of_a_base_and_of_an_instance_are_found",
            "tests/loop/test_decorators.py::test_helpers_are_nobodys_business",
        ),
        differs=(
            "Also judge, redact and evict; no trace_policy, no transformers. before_tool, "
            "wrap_agent_call and the like are refused by name."
        ),
    ),
    "A5.9": Row(
        "Every before, after and wrap hook has a decorator",
        (
            "tests/loop/test_decorators.py::test_a_decorated_function_is_middleware_with_one_hook_and_the_functions_name",
            "tests/loop/test_decorators.py::test_options_of_a_decorator",
            "tests/loop/test_decorators.py::test_decorated_functions_run_where_their_hooks_do",
            "tests/loop/test_decorators.py::test_wrong_use_says_what_is_expected",
        ),
        differs=(
            "judge, redact and evict have none. configure_trace_policy and omit_payload are not "
            "offered: traces hold no inputs of hooks."
        ),
    ),
    "A5.10": Row(
        "`@dynamic_prompt` replaces the system prompt",
        (
            "tests/loop/test_decorators.py::test_a_dynamic_prompt_replaces_the_system_prompt",
            "tests/loop/test_decorators.py::test_a_dynamic_prompt_that_is_no_text_fails_the_run_by_name",
        ),
    ),
    "A5.11": Row(
        "What traces contain can be limited",
        (
            "tests/telemetry/test_spans.py::test_contents_are_recorded_only_when_asked_for",
            "tests/telemetry/test_spans.py::test_recorded_contents_are_redacted_as_the_agent_redacts",
            "tests/telemetry/test_private.py::test_texts_of_errors_are_contents",
        ),
        differs=(
            "Contents are recorded only with `capture_content`, after redaction. Inputs of hooks "
            "are never recorded."
        ),
    ),
    "A5.12": Row(
        "Hooks get a runtime: context, store, stream writer, ids, draining",
        (
            "tests/loop/test_hooks.py::test_the_runtime_tells_where_the_run_is_and_takes_events",
            "tests/loop/test_cancellation.py::test_a_drain_from_a_hook_finishes_the_step_and_the_run_can_go_on",
            "tests/loop/test_rows_gaps.py::test_a_hook_can_see_what_remains_of_the_runs_limits",
            "tests/loop/test_interrupts.py::test_every_kind_of_hook_can_ask_and_gets_its_answer",
        ),
        differs="No heartbeat, previous or server_info; also the meter of limits, and interrupt.",
    ),
    "A5.13": Row(
        "Tools get a runtime, by type, name or mark; the model cannot see or set it",
        (
            "tests/tools/test_injection.py::test_injected_parameters_are_filled_in_and_hidden",
            "tests/tools/test_injection.py::test_the_model_cannot_set_them_and_errors_do_not_tell_of_them",
            "tests/tools/test_injection.py::test_each_mark_gets_its_part_of_the_runtime",
        ),
    ),
    "A5.14": Row(
        "Whatever a wrapper changes in a call is checked after the change",
        (
            "tests/loop/test_gate.py::test_a_wrapper_cannot_turn_an_allowed_call_into_a_denied_one",
            "tests/loop/test_gate.py::test_an_approval_holds_for_exactly_the_call_that_was_shown",
            "tests/loop/test_gate_attacks.py::test_what_runs_is_what_was_judged_though_the_arguments_change_while_it_waits",
            "tests/loop/test_gate_attacks.py::test_a_judge_that_changes_arguments_in_place_changes_nothing_that_runs",
        ),
        differs="In LangChain a wrapper can change a call after it was approved.",
    ),
}
