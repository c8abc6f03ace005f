"""Approvals, limits, retries and fallbacks (B1 to B7)."""

from tests.behaviour_table.row import Row

ROWS: dict[str, Row] = {
    "B1": Row(
        (
            "HumanInTheLoopMiddleware asks before calls of the named tools: approve, edit, reject "
            "or respond"
        ),
        (
            "tests/middleware/test_human_in_the_loop.py::test_true_asks_with_every_decision",
            "tests/middleware/test_human_in_the_loop.py::test_false_and_unnamed_tools_pass",
            "tests/middleware/test_human_in_the_loop.py::test_globs_match_and_exact_names_go_first",
            "tests/middleware/test_human_in_the_loop.py::test_the_notice_of_an_edit_can_be_worded_or_left_out",
            "tests/middleware/test_human_in_the_loop.py::test_calls_of_one_answer_are_asked_at_once_and_answered_in_any_order",
        ),
        differs=(
            "No interrupt_mode: each call has its own question, and all questions of a turn are "
            "open at once."
        ),
    ),
    "B1.1": Row(
        "A rule has decisions, a description and a condition",
        (
            "tests/middleware/test_human_in_the_loop.py::test_a_wrong_config_is_refused_when_the_agent_is_built",
            "tests/middleware/test_approval_answers.py::test_a_decision_that_is_not_offered_is_refused_and_the_right_one_still_counts",
            "tests/middleware/test_human_in_the_loop.py::test_a_predicate_decides_by_arguments",
            "tests/middleware/test_human_in_the_loop.py::test_descriptions_are_texts_or_functions_of_the_call",
            "tests/middleware/test_approval_answers.py::test_every_call_a_person_decided_is_paired_with_its_result_in_call_order",
        ),
    ),
    "B1.2": Row(
        "All questions of a turn are asked together; a wrong answer changes nothing",
        (
            "tests/middleware/test_human_in_the_loop.py::test_calls_of_one_answer_are_asked_at_once_and_answered_in_any_order",
            "tests/middleware/test_approval_answers.py::test_a_decision_that_is_not_offered_is_refused_and_the_right_one_still_counts",
            "tests/middleware/test_approval_answers.py::test_one_wrong_answer_among_several_stores_none_of_them",
        ),
        differs="Answers name the question's id, not its place in a list.",
    ),
    "B1.3": Row(
        "An approved call runs unchanged",
        (
            "tests/middleware/test_human_in_the_loop.py::test_calls_of_one_answer_are_asked_at_once_and_answered_in_any_order",
            "tests/loop/test_gate.py::test_an_approval_holds_for_exactly_the_call_that_was_shown",
        ),
    ),
    "B1.4": Row(
        (
            "An edited call runs as edited; the transcript keeps the model's call, and the result "
            "says so once"
        ),
        (
            "tests/loop/test_gate.py::test_an_edit_runs_as_edited_and_says_so",
            "tests/middleware/test_approval_answers.py::test_an_edited_call_is_annotated_once_whatever_is_around_it",
            "tests/middleware/test_approval_answers.py::test_an_edit_of_an_edit_is_annotated_once_with_what_ran",
            "tests/middleware/test_approval_answers.py::test_the_note_of_an_edit_keeps_blocks_data_and_state_of_the_result",
            "tests/middleware/test_human_in_the_loop.py::test_an_edit_that_the_tool_could_not_take_is_refused_before_it_is_stored",
        ),
    ),
    "B1.5": Row(
        "A call edited into another tool's is checked by the rules of that tool",
        (
            "tests/middleware/test_human_in_the_loop.py::test_an_edited_call_is_judged_by_its_own_rule",
            "tests/middleware/test_expected.py::test_a_tool_that_may_only_be_rejected_is_not_run_by_way_of_an_edit",
            "tests/loop/test_gate.py::test_an_edit_into_another_tool_is_judged_as_that_tool",
            "tests/loop/test_gate_answers.py::test_an_edit_into_another_tool_that_needs_approval_is_asked_about_again",
            "tests/loop/test_gate_answers.py::test_an_edited_call_is_still_denied_by_a_path_rule",
        ),
        differs="In LangChain it runs without a check.",
    ),
    "B1.6": Row(
        "A rejected call gets an error result; the other calls run",
        (
            "tests/middleware/test_approval_answers.py::test_every_call_a_person_decided_is_paired_with_its_result_in_call_order",
            "tests/loop/test_gate.py::test_a_retrying_wrapper_does_not_get_past_a_rejection",
            "tests/middleware/test_approval_answers.py::test_a_hook_that_jumps_to_the_tools_runs_no_rejected_call",
        ),
    ),
    "B1.7": Row(
        "A person can respond in the tool's place",
        (
            "tests/middleware/test_approval_answers.py::test_a_decision_that_is_not_offered_is_refused_and_the_right_one_still_counts",
            "tests/middleware/test_approval_answers.py::test_every_call_a_person_decided_is_paired_with_its_result_in_call_order",
            "tests/loop/test_run_input.py::test_a_person_who_responds_with_nothing_leaves_no_empty_result",
        ),
    ),
    "B1.8": Row(
        "Each question has a schema of its answers; an answer is checked before it is stored",
        (
            "tests/middleware/test_approval_answers.py::test_a_decision_that_is_not_offered_is_refused_and_the_right_one_still_counts",
            "tests/loop/test_reused_call_ids.py::test_each_call_is_asked_about_and_decided_by_itself",
            "tests/loop/test_durability.py::test_wrong_answers_are_refused_and_not_stored",
            "tests/middleware/test_tool_retry.py::test_a_person_is_asked_once_for_all_attempts_also_when_the_call_is_edited",
            "tests/middleware/test_approval_answers.py::test_an_edit_is_not_replayed_on_a_later_call_with_the_same_id",
            "tests/loop/test_gate_attacks.py::test_calls_that_share_an_id_run_once_and_share_no_approval",
            "tests/middleware/test_approval_answers.py::test_an_edited_call_is_annotated_once_whatever_is_around_it",
            "tests/middleware/test_human_in_the_loop.py::test_an_edit_that_the_tool_could_not_take_is_refused_before_it_is_stored",
        ),
        differs="Retries never ask again, wherever the retry middleware stands.",
    ),
    "B1.9": Row(
        (
            "A new message instead of an answer closes the question, and the open call gets an "
            "error result"
        ),
        (
            "tests/loop/test_durability.py::test_a_new_message_instead_of_an_answer_closes_the_question",
            "tests/loop/test_interrupts.py::test_a_message_instead_of_an_answer_drops_the_questions_of_hooks_and_subagents",
        ),
    ),
    "B1.10": Row(
        (
            "Questions of parallel subagents say who asks, keep their order, and are answered one "
            "by one"
        ),
        (
            "tests/loop/test_subagent_calls.py::test_parallel_children_ask_labelled_questions_and_are_answered_in_any_order",
            "tests/loop/test_interrupts.py::test_parallel_subagents_with_parallel_questions_are_told_apart_and_kept_in_order",
            "tests/loop/test_loop_laws.py::test_questions_keep_their_ids_and_order_in_every_process",
        ),
        differs="In LangChain they do not say who asks, and their order changes.",
    ),
    "B2": Row(
        "ModelCallLimitMiddleware limits the model calls of a run and of a thread",
        (
            "tests/middleware/test_model_call_limit.py::test_a_run_ends_with_an_answer_that_names_the_limit",
            "tests/middleware/test_model_call_limit.py::test_error_lets_the_run_fail_with_a_typed_reason_and_a_higher_limit_goes_on",
            "tests/middleware/test_model_call_limit.py::test_each_run_has_its_own_count_and_the_thread_counts_on",
            "tests/middleware/test_model_call_limit.py::test_counts_are_private_and_callers_cannot_set_them",
            "tests/middleware/test_model_call_limit.py::test_wrong_options_are_refused_with_what_is_accepted",
        ),
    ),
    "B3": Row(
        "ToolCallLimitMiddleware limits the calls of one tool, or of all together",
        (
            "tests/middleware/test_tool_call_limit.py::test_of_parallel_calls_those_within_the_limit_run_and_other_tools_too",
            "tests/middleware/test_tool_call_limit.py::test_end_answers_every_call_runs_none_and_names_the_limit",
            "tests/middleware/test_tool_call_limit.py::test_several_limits_hold_at_once",
            "tests/middleware/test_tool_call_limit.py::test_the_thread_counts_only_calls_that_ran",
            "tests/middleware/test_tool_call_limit.py::test_calls_made_aside_at_the_same_time_do_not_pass_the_limit",
            "tests/middleware/test_tool_call_limit.py::test_wrong_options_are_refused_with_what_is_accepted",
            "tests/middleware/test_tool_call_limit.py::test_without_a_tool_all_tools_count_together",
            "tests/middleware/test_tool_call_limit.py::test_error_lets_the_run_fail_with_a_typed_reason_and_a_higher_limit_goes_on",
        ),
    ),
    "B4": Row(
        (
            "ModelRetryMiddleware repeats failed model calls; computed waits never exceed "
            "`max_delay`, and `retry-after` is respected"
        ),
        (
            "tests/middleware/test_model_retry.py::test_a_call_that_may_pass_is_made_again_until_the_model_answers",
            "tests/middleware/test_model_retry.py::test_waits_grow_by_the_factor_up_to_the_longest",
            "tests/middleware/test_model_retry.py::test_a_long_wait_is_capped_after_the_jitter",
            "tests/middleware/test_retry_waits.py::test_waits_lie_within_a_quarter_of_the_figure_and_never_above_the_longest",
            "tests/middleware/test_model_retry.py::test_a_provider_that_says_how_long_to_wait_is_believed",
            "tests/middleware/test_model_retry.py::test_a_provider_that_asks_for_more_than_the_longest_wait_is_not_asked_again",
            "tests/middleware/test_model_patience.py::test_the_wait_a_provider_asks_for_is_kept",
            "tests/models/test_anthropic_errors.py::test_the_wait_a_provider_asks_for_is_reported",
            "tests/middleware/test_model_retry.py::test_questions_are_asked_once_and_attempts_begin_anew_after_the_answer",
        ),
        differs="LangChain adds jitter after the cap and ignores `retry-after`.",
    ),
    "B5": Row(
        "ToolRetryMiddleware repeats failed tool calls; other calls keep their results",
        (
            "tests/middleware/test_tool_retry.py::test_a_tool_that_may_be_repeated_is_until_it_answers",
            "tests/middleware/test_tool_retry.py::test_a_tool_that_could_act_twice_is_called_once",
            "tests/middleware/test_tool_retry.py::test_a_question_of_the_tool_is_not_a_failure",
            "tests/middleware/test_tool_retry.py::test_siblings_keep_their_results_and_run_once",
            "tests/middleware/test_tool_retry.py::test_after_the_last_attempt_the_model_reads_the_error",
        ),
        differs=(
            "Only tools marked read_only or idempotent are repeated, so that nothing happens twice."
        ),
    ),
    "B6": Row(
        "ToolErrorMiddleware lets a function write the text of a tool's error",
        (
            "tests/middleware/test_tool_error.py::test_the_function_sees_error_and_call_and_the_model_reads_its_text",
            "tests/middleware/test_tool_error.py::test_content_blocks_are_a_result_too",
            "tests/middleware/test_tool_error.py::test_none_leaves_the_usual_error_result",
            "tests/middleware/test_tool_error.py::test_a_handler_is_required_and_takes_error_and_request",
        ),
        differs="Returning None keeps the usual error result instead of raising.",
    ),
    "B7": Row(
        "ModelFallbackMiddleware asks another model when one fails, and stays with it for a while",
        (
            "tests/middleware/test_model_fallback.py::test_the_next_one_is_asked_in_order_until_one_answers",
            "tests/middleware/test_model_fallback.py::test_when_all_fail_the_last_error_that_may_pass_is_raised",
            "tests/middleware/test_model_fallback.py::test_later_calls_of_all_threads_go_straight_to_the_model_that_worked",
            "tests/middleware/test_model_fallback.py::test_another_provider_gets_no_blocks_settings_and_tools_of_the_first",
            "tests/middleware/test_model_fallback.py::test_claude_with_a_thinking_budget_takes_over_between_calls_and_their_results",
            "tests/middleware/test_retry_waits.py::test_a_question_or_a_stop_inside_of_a_fallback_asks_no_other_model",
        ),
        differs="LangChain begins each call with the model that failed.",
    ),
}
