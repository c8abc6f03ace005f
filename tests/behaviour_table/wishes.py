"""Complaints and wishes of users of the other libraries (E)."""

from tests.behaviour_table.row import Row

ROWS: dict[str, Row] = {
    "E1": Row(
        (
            "A journal grows with what is written, and threads can be pruned, copied, deleted and "
            "vacuumed"
        ),
        (
            "tests/loop/test_durability.py::test_a_round_stores_what_it_adds_however_long_the_thread_is",
            "tests/checkpoint/test_committers.py::test_a_thousand_steps_take_room_in_proportion_to_their_data",
            "tests/checkpoint/test_packing.py::test_a_large_value_is_stored_once_whoever_holds_it",
            "tests/checkpoint/test_conformance.py::test_law",
            "tests/checkpoint/test_properties.py::test_no_state_that_stays_is_shortened_by_a_removal",
        ),
        differs=(
            "LangGraph's SQLite journal stores the whole state at each step and cannot be pruned."
        ),
    ),
    "E2": Row(
        "Opening a thread costs the size of its state, and listing its history reads no state",
        (
            "tests/checkpoint/test_folded_states.py::test_opening_reads_a_multiple_of_the_state_and_not_its_history",
            "tests/middleware/test_expected.py::test_the_history_of_a_long_thread_is_listed_without_reading_a_state",
        ),
        differs="LangGraph rebuilds the state of every entry.",
    ),
    "E3": Row(
        "A step is stored whole or not at all, and accepted input before anything else",
        (
            "tests/loop/test_crash_points.py::test_a_death_at_any_commit_changes_nothing_but_what_was_unfinished",
            "tests/checkpoint/test_processes.py::test_a_killed_process_loses_no_acknowledged_commit_and_tears_none",
            "tests/loop/test_durability_modes.py::test_exit_stores_the_input_at_once_and_the_steps_at_the_end",
        ),
        differs="LangGraph stores the parts of a step one by one.",
    ),
    "E4": Row(
        "A branch never sees what another branch wrote",
        (
            "tests/checkpoint/test_properties.py::test_any_checkpoint_on_disk_is_the_fold_of_its_branch",
            "tests/loop/test_durability.py::test_a_fork_goes_back_and_keeps_the_history",
            "tests/loop/test_time_travel.py::test_a_replay_in_a_fork_stays_in_the_fork",
        ),
    ),
    "E5": Row(
        "Loading a thread imports and calls nothing that its data names",
        ("tests/checkpoint/test_hostile_rows.py::test_nothing_that_a_row_names_is_imported",),
        differs="LangGraph imports and calls it unless its strict mode is turned on.",
    ),
    "E6": Row(
        "No jump runs a call that a person rejected",
        (
            "tests/middleware/test_approval_answers.py::test_a_hook_that_jumps_to_the_tools_runs_no_rejected_call",
            "tests/loop/test_gate.py::test_jump_to_tools_does_not_run_a_rejected_call",
            "tests/loop/test_gate_attacks.py::test_a_rejected_call_has_its_result_so_jumping_back_to_it_is_an_error",
            "tests/loop/test_gate_attacks.py::test_a_call_that_a_hook_injects_and_jumps_to_is_judged",
        ),
    ),
    "E7": Row(
        "Rules and approvals apply to the call that finally runs",
        (
            "tests/loop/test_gate.py::test_a_wrapper_cannot_turn_an_allowed_call_into_a_denied_one",
            "tests/loop/test_gate_attacks.py::test_what_runs_is_what_was_judged_though_the_arguments_change_while_it_waits",
            "tests/loop/test_gate.py::test_an_edit_into_another_tool_is_judged_as_that_tool",
            "tests/loop/test_gate.py::test_an_approval_holds_for_exactly_the_call_that_was_shown",
            "tests/loop/test_gate_attacks.py::test_a_judge_that_changes_arguments_in_place_changes_nothing_that_runs",
            "tests/loop/test_gate_answers.py::test_an_edit_into_another_tool_that_needs_approval_is_asked_about_again",
        ),
    ),
    "E8": Row(
        "A question says which of the parallel subagents asks it",
        (
            "tests/loop/test_interrupts.py::test_parallel_subagents_with_parallel_questions_are_told_apart_and_kept_in_order",
            "tests/loop/test_interrupts.py::test_all_questions_of_all_subagents_can_be_answered_at_once",
            "tests/loop/test_interrupts.py::test_a_subagent_goes_on_by_itself_when_answered_while_another_call_runs",
        ),
    ),
    "E9": Row(
        "Nothing that has finished runs again",
        (
            "tests/loop/test_interrupts.py::test_a_tool_that_asks_twice_runs_from_its_start_but_its_siblings_do_not",
            "tests/loop/test_interrupts.py::test_a_question_after_the_model_does_not_ask_the_model_again",
            "tests/loop/test_once.py::test_a_call_that_had_begun_is_not_made_again_and_the_model_is_told",
            "tests/loop/test_durability.py::test_after_a_crash_only_unfinished_calls_run_again",
        ),
    ),
    "E10": Row(
        "A failing tool does not end the run",
        (
            "tests/loop/test_routing.py::test_results_are_in_call_order_and_a_failing_tool_is_a_result",
            "tests/middleware/test_delegated_work.py::test_a_tool_that_fails_inside_of_a_subagent_ends_neither_it_nor_its_caller",
            "tests/mcp_servers/test_tools.py::test_a_failing_tool_is_an_error_result_and_the_run_goes_on",
            "tests/loop/test_tool_policies.py::test_a_strict_tool_ends_the_run_and_what_finished_beside_it_is_kept",
        ),
    ),
    "E11": Row(
        "A structured answer is repaired a bounded number of times, then fails with a typed error",
        (
            "tests/loop/test_structured_answers.py::test_repair_is_bounded_and_the_failure_holds_the_last_attempt",
            "tests/loop/test_structured_answers.py::test_prose_is_followed_by_one_forced_call",
            "tests/test_structured_output.py::test_repairs_are_bounded_and_the_failure_holds_the_last_attempt",
        ),
    ),
    "E12": Row(
        "A summary loses no request, no pair of call and result, and no message",
        (
            "tests/test_valid_conversations.py::test_no_request_of_a_thread_is_refused",
            "tests/middleware/test_long_runs.py::test_the_request_is_in_view_at_every_call_of_twelve_rounds_with_large_results",
            "tests/middleware/test_long_runs.py::test_a_failed_summary_in_a_run_leaves_log_and_view_and_is_tried_at_the_next_call",
            "tests/middleware/test_long_runs.py::test_a_result_whose_call_is_gone_is_not_sent_along_with_one_that_has_its_call",
            "tests/middleware/test_long_runs.py::test_large_tool_schemas_bring_the_summary_forward",
            "tests/middleware/test_summary_writer.py::test_a_window_smaller_than_the_model_says_is_found_and_nothing_is_left_out",
            "tests/middleware/test_summarization.py::test_everything_that_leaves_the_view_is_read_by_the_summariser",
        ),
    ),
    "E13": Row(
        "A model that repeats itself is warned, then stopped",
        (
            "tests/test_looping_models.py::test_a_default_deep_agent_stops_a_model_that_goes_in_circles",
            "tests/test_looping_models.py::test_a_subagent_that_goes_in_circles_is_stopped_and_its_caller_goes_on",
            "tests/middleware/test_repeat_guard.py::test_the_same_call_with_the_same_result_is_nudged_once_then_stopped",
            "tests/middleware/test_repeat_guard.py::test_two_calls_that_alternate_are_stopped",
            "tests/middleware/test_repeat_guard.py::test_the_same_error_whatever_the_arguments_is_stopped",
            "tests/middleware/test_repeat_guard.py::test_a_tool_that_is_not_there_is_not_called_for_ever",
            "tests/middleware/test_repeat_guard.py::test_polling_a_status_that_changes_is_no_repetition",
        ),
    ),
    "E14": Row(
        (
            "Budgets of tokens and cost apply to a run or a whole thread, of time to a run; "
            "subagents included, with a warning and a last turn"
        ),
        (
            "tests/loop/test_thread_budgets.py::test_runs_of_a_thread_share_a_budget_that_warns_wraps_up_and_ends",
            "tests/loop/test_thread_budgets.py::test_calls_are_counted_with_those_of_subagents_and_of_failed_and_stopped_runs",
            "tests/test_looping_models.py::test_a_limit_holds_for_the_calls_of_all_agents_together_in_a_deep_agent",
            "tests/subagents/test_child_limits.py::test_a_child_below_a_child_counts_for_all_above_it_and_keeps_a_turn_for_them",
            "tests/test_limits.py::test_a_token_budget_is_exceeded_by_at_most_one_call",
            "tests/test_limits.py::test_cost_is_counted_by_list_prices_and_ends_the_run",
            "tests/loop/test_run_limits.py::test_near_a_limit_there_is_one_turn_to_wrap_up_and_past_it_a_typed_reason",
            "tests/test_limits.py::test_at_75_percent_an_agent_is_told_what_is_left",
            "tests/loop/test_run_limits.py::test_near_the_deadline_the_model_is_told_to_wrap_up",
            "tests/middleware/test_budget_warning.py::test_the_model_is_warned_once_then_told_to_wrap_up",
            "tests/loop/test_cancellation.py::test_a_deadline_stops_the_model_and_the_agents_below",
        ),
    ),
    "E15": Row(
        "A run reports what each agent cost, and how much the provider's cache saved",
        (
            "tests/test_usage_ledger.py::test_the_ledger_has_a_line_for_each_agent_and_model_and_survives_a_pause",
            "tests/middleware/test_prompt_cache_hits.py::test_each_request_begins_with_the_whole_one_before",
            "tests/middleware/test_prompt_cache_hits.py::test_a_summary_costs_the_messages_but_not_tools_and_prompt",
            "tests/loop/test_model_cache.py::test_the_same_run_asks_the_model_once_across_agents_and_restarts",
        ),
    ),
    "E16": Row(
        "Changed skills are read again",
        (
            "tests/test_own_edits.py::test_a_skill_that_a_person_saves_between_two_runs_is_told_in_the_second",
            "tests/middleware/test_skills.py::test_a_real_agent_loads_a_skill_and_hears_of_a_change_at_its_next_call",
            "tests/skills/test_hot_reload.py::test_a_new_skill_and_an_edit_are_noticed",
            "tests/e2e/test_announcements.py::test_a_saved_skill_is_announced_to_clients_of_either_era",
            "tests/server/test_face.py::test_a_skill_saved_a_moment_ago_is_served_as_it_is_now",
        ),
    ),
    "E17": Row(
        "Changed memory files are read again",
        (
            "tests/test_own_edits.py::test_an_agent_sees_its_own_edit_of_memory_and_keeps_it_over_a_restart",
            "tests/middleware/test_memory.py::test_a_real_agent_sees_its_own_edit_at_its_next_call",
            "tests/middleware/test_memory.py::test_a_file_that_appears_or_vanishes_is_told",
        ),
    ),
    "E18": Row(
        "Commands run in a sandbox, and rules apply to them",
        (
            "tests/middleware/test_shell.py::test_by_default_commands_run_in_a_sandbox",
            "tests/policy/test_command_lines.py::test_no_attack_passes_an_allow_by_command",
            "tests/middleware/test_execute.py::test_what_file_tools_may_not_read_or_write_commands_may_not_either",
            "tests/middleware/test_execute.py::test_a_guarded_file_does_not_slip_away_under_another_name",
            "tests/shell/test_escapes.py::test_nothing_outside_can_be_read",
            "tests/middleware/test_execute.py::test_commands_are_judged_like_those_of_the_shell",
        ),
    ),
    "E19": Row(
        "Commands have no false timeouts, lost output, orphaned processes or silent restarts",
        (
            "tests/middleware/test_shell.py::test_output_without_a_last_newline_is_no_timeout",
            "tests/middleware/test_shell.py::test_a_timeout_keeps_the_output_and_says_what_is_lost",
            "tests/shell/test_endings.py::test_closing_ends_what_commands_left_running",
            "tests/shell/test_session.py::test_a_process_in_the_background_does_not_hold_the_call",
            "tests/middleware/test_shell.py::test_after_a_resume_in_another_process_the_model_is_told",
            "tests/shell/test_session.py::test_a_timeout_keeps_what_was_written_and_ends_everything",
        ),
    ),
    "E20": Row(
        "Edits keep line ends and encodings",
        (
            "tests/middleware/test_filesystem.py::test_edits_keep_every_other_byte",
            "tests/middleware/test_filesystem.py::test_an_edit_leaves_the_bytes_around_it",
            "tests/backends/test_text.py::test_unchanged_lines_of_the_replaced_text_keep_their_own_line_ends",
            "tests/backends/test_store_backend.py::test_an_edit_finds_text_across_crlf_and_keeps_every_other_byte",
        ),
    ),
    "E21": Row(
        "Native paths, also of Windows, are understood",
        (
            "tests/backends/test_directory.py::test_native_paths_become_virtual",
            "tests/backends/test_directory.py::test_windows_paths_become_virtual",
            "tests/backends/test_directory.py::test_names_with_a_meaning_of_their_own_on_windows_are_refused",
            "tests/policy/test_rules.py::test_no_spelling_of_a_path_slips_past",
        ),
    ),
    "E22": Row(
        "Every event says which agent it is from; internal model calls do not appear",
        (
            "tests/loop/test_streams.py::test_events_of_a_subagent_carry_the_path_to_it",
            "tests/loop/test_streams.py::test_parallel_subagents_are_told_apart_by_call",
            "tests/loop/test_streams.py::test_internal_model_calls_are_not_in_the_stream_of_messages",
            "tests/server/test_progress.py::test_steps_are_told_with_the_agents_they_belong_to",
        ),
    ),
    "E23": Row(
        "Subagents can be continued, run in the background, and have limits and tools of their own",
        (
            "tests/subagents/test_continuing.py::test_a_result_has_a_handle_in_text_and_data_and_with_it_the_subagent_goes_on",
            "tests/subagents/background/test_launcher.py::test_tasks_run_side_by_side_and_are_waited_for_with_one_call",
            "tests/subagents/test_child_limits.py::test_a_subagent_is_stopped_in_the_middle_of_a_call_when_its_time_is_over",
            "tests/subagents/background/test_launcher.py::test_a_task_has_limits_of_its_own_and_says_when_its_time_is_over",
            "tests/subagents/test_declared.py::test_a_subagent_has_all_tools_of_its_caller_but_task_unless_it_names_some",
        ),
    ),
    "E24": Row(
        "Tools of many MCP servers can be limited, selected or searched",
        (
            "tests/mcp_servers/test_tools.py::test_only_the_listed_tools_of_a_server_are_used",
            "tests/mcp_servers/test_tools.py::test_a_subagent_can_be_given_some_servers_over_the_same_connections",
            "tests/middleware/test_provider_tool_search.py::test_an_agent_finds_and_calls_a_tool_through_the_messages_api",
            "tests/middleware/test_tool_selection.py::test_only_the_chosen_tools_are_offered_in_their_own_order",
        ),
    ),
    "E25": Row(
        "Private data leaks through no argument, older message, stream or stored row",
        (
            "tests/middleware/test_pii.py::test_a_run_full_of_secrets_leaves_none_anywhere",
            "tests/middleware/test_pii.py::test_streamed_text_is_the_stored_text",
            "tests/middleware/test_pii.py::test_structured_content_keeps_its_structure",
            "tests/redaction/test_streams.py::test_arguments_stay_json_and_are_what_is_stored",
            "tests/middleware/test_pii_threads.py::test_a_redacted_thread_holds_its_secrets_no_more",
            "tests/middleware/test_pii.py::test_messages_from_before_the_middleware_are_redacted_for_model_and_callers",
        ),
    ),
}
