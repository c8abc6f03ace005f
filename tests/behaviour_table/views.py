"""Summaries, cleared results, redaction (B8 to B10)."""

from tests.behaviour_table.row import Row

ROWS: dict[str, Row] = {
    "B8": Row(
        "SummarizationMiddleware replaces old messages by a summary",
        (
            "tests/middleware/test_summarization.py::test_a_large_request_shows_the_goal_a_summary_and_the_recent_end",
            "tests/middleware/test_summarization.py::test_the_next_call_uses_the_stored_summary_and_keeps_the_prefix",
            "tests/middleware/test_summarization.py::test_summaries_are_private_and_append_only",
            "tests/middleware/test_summaries_kept.py::test_a_resumed_run_shows_the_summary_that_was_paid_for",
            "tests/middleware/test_long_runs.py::test_the_request_is_in_view_at_every_call_of_twelve_rounds_with_large_results",
        ),
        differs="The state keeps every message; only what the model sees is shortened.",
    ),
    "B8.1": Row(
        (
            "Triggers are sizes, a mapping (all of them) or a list (any of them); reported usage "
            "counts too"
        ),
        (
            "tests/middleware/test_summarization.py::test_triggers_are_sizes_all_of_a_mapping_or_any_of_a_list",
            "tests/middleware/test_summarization.py::test_a_size_out_of_range_is_refused",
            "tests/middleware/test_summarization.py::test_system_prompt_and_usage_of_the_last_answer_count",
            "tests/middleware/test_long_runs.py::test_only_the_usage_that_the_last_answer_reported_counts",
            "tests/middleware/test_long_runs.py::test_an_unknown_window_counts_as_two_hundred_thousand_tokens",
        ),
        differs=(
            "A fraction of an unknown window counts from 200,000 tokens instead of being refused."
        ),
    ),
    "B8.2": Row(
        "Tool schemas and the system prompt are counted",
        (
            "tests/middleware/test_summarization.py::test_system_prompt_and_usage_of_the_last_answer_count",
            "tests/middleware/test_long_runs.py::test_large_tool_schemas_bring_the_summary_forward",
            "tests/middleware/test_summarization_options.py::test_a_counter_has_the_last_word",
        ),
        differs="LangChain counts messages only.",
    ),
    "B8.3": Row(
        "A cut never separates a call from its result; results without a call are left out",
        (
            "tests/middleware/test_summarization.py::test_requests_stay_visible_pairs_intact_and_order_kept",
            "tests/middleware/test_summarization.py::test_many_parallel_calls_stay_together",
            "tests/middleware/test_long_runs.py::test_a_result_whose_call_is_gone_is_not_sent_along_with_one_that_has_its_call",
            "tests/middleware/test_expected.py::test_beside_a_summary_no_result_is_shown_whose_call_is_gone",
        ),
        differs="LangChain can keep a result without its call.",
    ),
    "B8.4": Row(
        "Everything that leaves the view is summarised; the user's request never leaves it",
        (
            "tests/middleware/test_long_runs.py::test_the_request_is_in_view_at_every_call_of_twelve_rounds_with_large_results",
            "tests/middleware/test_summarization.py::test_everything_that_leaves_the_view_is_read_by_the_summariser",
            "tests/middleware/test_summarization.py::test_a_part_larger_than_the_summarisers_window_goes_in_pieces",
        ),
        differs="LangChain trims what it summarises to 4,000 tokens; the request can be lost.",
    ),
    "B8.5": Row(
        "A summary that fails changes nothing; error text never becomes a summary",
        (
            "tests/middleware/test_summarization.py::test_a_failing_summary_is_tried_again",
            "tests/middleware/test_summarization.py::test_when_no_summary_can_be_made_the_request_goes_out_uncut",
            "tests/middleware/test_long_runs.py::test_a_failed_summary_in_a_run_leaves_log_and_view_and_is_tried_at_the_next_call",
            "tests/middleware/test_summarization.py::test_a_summariser_whose_window_is_smaller_than_it_says_gets_smaller_pieces",
        ),
        differs="The run continues with the full request.",
    ),
    "B8.6": Row(
        "The prompt of the summariser is a template (sections or handover) or your own text",
        (
            "tests/middleware/test_summarization_options.py::test_the_prompt_is_a_template_or_a_text",
            "tests/middleware/test_summarization_options.py::test_instructions_are_added_and_a_handover_ends_with_a_reminder",
            "tests/middleware/test_summarization_options.py::test_what_a_summariser_thought_out_loud_is_not_kept",
        ),
    ),
    "B9": Row(
        (
            "ContextEditingMiddleware clears old tool results in what the model sees; the state "
            "keeps them"
        ),
        (
            "tests/middleware/test_context_editing.py::test_old_results_are_cleared_and_the_newest_stay_with_their_calls",
            "tests/middleware/test_context_editing.py::test_a_counter_of_ones_own_goes_before_the_method",
            "tests/middleware/test_context_editing.py::test_an_agent_sees_less_while_its_log_keeps_everything",
        ),
    ),
    "B9.1": Row(
        (
            "What is cleared changes in large steps, so that the provider's prompt cache stays "
            "valid in between"
        ),
        (
            "tests/middleware/test_context_editing.py::test_the_view_changes_only_when_the_frontier_moves_and_it_moves_in_steps",
            "tests/middleware/test_context_editing.py::test_excluded_tools_are_never_cleared_even_if_a_result_does_not_name_its_tool",
            "tests/middleware/test_context_editing.py::test_inputs_are_cleared_along_with_their_results_only_when_asked",
            "tests/middleware/test_context_editing.py::test_nothing_is_cleared_if_that_frees_too_little",
            "tests/middleware/test_context_editing.py::test_the_frontier_survives_a_restart",
        ),
        differs="LangChain clears again at each call, which invalidates the cache.",
    ),
    "B10": Row(
        "PIIMiddleware redacts input, answers and tool results by kind of data",
        (
            "tests/middleware/test_pii.py::test_each_flag_has_its_place",
            "tests/middleware/test_pii.py::test_own_detectors",
            "tests/middleware/test_pii.py::test_names_tell_instances_apart_and_wrong_arguments_are_explained",
            "tests/redaction/test_detectors.py::test_a_value_is_found_whole_wherever_it_stands",
            "tests/redaction/test_detectors.py::test_what_only_looks_like_one_stays",
        ),
    ),
    "B10.1": Row(
        "Strategies: block, redact, mask, hash (with a salt), tokenize",
        (
            "tests/middleware/test_pii.py::test_blocked_input_is_refused_and_nothing_is_stored",
            "tests/middleware/test_pii.py::test_a_run_full_of_secrets_leaves_none_anywhere",
            "tests/middleware/test_pii.py::test_own_detectors",
            "tests/middleware/test_pii.py::test_without_a_salt_hashes_are_a_threads_own_and_stay_over_restarts",
            "tests/redaction/test_detectors.py::test_a_mask_keeps_the_part_that_people_know_it_by",
            "tests/redaction/test_streams.py::test_what_is_blocked_never_begins_to_appear",
        ),
    ),
    "B10.2": Row(
        (
            "Older messages, arguments, cards of every length, IPv6, streams and structured "
            "content are redacted too"
        ),
        (
            "tests/middleware/test_pii.py::test_messages_from_before_the_middleware_are_redacted_for_model_and_callers",
            "tests/middleware/test_expected.py::test_results_of_earlier_turns_are_redacted_as_well_as_the_newest",
            "tests/middleware/test_pii.py::test_all_messages_of_an_input_are_redacted_not_only_the_last",
            "tests/middleware/test_pii.py::test_arguments_of_calls_are_redacted_in_state_and_for_the_tool",
            "tests/middleware/test_pii.py::test_cards_of_every_length_and_both_kinds_of_ip",
            "tests/middleware/test_pii.py::test_structured_content_keeps_its_structure",
            "tests/redaction/test_streams.py::test_any_cut_gives_the_same_text",
            "tests/middleware/test_pii.py::test_a_stream_holds_back_more_than_any_window",
        ),
        differs="LangChain leaves most of these unredacted.",
    ),
}
