"""Steps, interrupts, time travel and streams (D1, D3, D4, D8)."""

from tests.behaviour_table.row import Row

ROWS: dict[str, Row] = {
    "D1.1": Row(
        "One turn of the loop",
        (
            "tests/loop/test_debugging.py::test_debug_prints_each_step_and_leaves_the_stream_as_it_is",
            "tests/loop/test_streams.py::test_checkpoints_are_the_commits_of_the_journal",
            "tests/loop/test_breakpoints.py::test_a_star_stops_at_every_node",
        ),
        differs=(
            "Phases in a fixed order instead of prepared tasks. A run ends done, needs_approval, "
            "paused, failed or cancelled."
        ),
    ),
    "D1.2": Row(
        "What runs next",
        (
            "tests/loop/test_drawing.py::test_a_run_walks_along_the_edges_of_the_picture",
            "tests/loop/test_streams.py::test_checkpoints_are_the_commits_of_the_journal",
        ),
        differs=(
            "Each checkpoint names the phase that follows, from one routing table; there are no "
            "channel versions."
        ),
    ),
    "D1.3": Row(
        "Versions guard against conflicting writers",
        (
            "tests/checkpoint/test_conformance.py::test_the_same_step_can_be_finished_only_once",
            "tests/checkpoint/test_conformance.py::test_a_run_cannot_go_on_from_anything_but_the_head",
        ),
        differs="A checkpoint names its parent, and only the newest one can be continued.",
    ),
    "D1.4": Row(
        "Parallel writes are joined in call order; a failed call writes nothing",
        (
            "tests/checkpoint/test_conformance.py::test_parallel_tasks_are_folded_in_call_order",
            "tests/loop/test_tool_returns.py::test_what_cannot_be_kept_is_an_error_result_and_the_thread_stays_usable",
            "tests/loop/test_routing.py::test_results_are_in_call_order_though_the_calls_finish_in_another",
        ),
    ),
    "D1.5": Row(
        "Ids of questions and calls stay the same after a resume",
        (
            "tests/loop/test_loop_laws.py::test_questions_keep_their_ids_and_order_in_every_process",
            "tests/loop/test_time_travel.py::test_an_unfinished_run_can_be_taken_over_without_input_and_keeps_its_finished_calls",
        ),
    ),
    "D1.6": Row(
        "A finished call is stored at once and not repeated",
        (
            "tests/loop/test_durability.py::test_after_a_crash_only_unfinished_calls_run_again",
            "tests/loop/test_crash_points.py::test_a_death_at_any_commit_changes_nothing_but_what_was_unfinished",
            "tests/checkpoint/test_conformance.py::test_finished_tasks_of_an_unfinished_step_are_pending",
            "tests/checkpoint/test_conformance.py::test_a_task_that_wrote_nothing_still_counts_as_finished",
        ),
    ),
    "D1.7": Row(
        "Reserved state keys",
        (
            "tests/loop/test_state.py::test_a_key_of_the_loop_declared_in_another_way_is_refused_by_name",
            "tests/loop/test_structured_runs.py::test_a_schema_that_makes_something_else_of_the_answer_is_refused",
            "tests/loop/test_tool_returns.py::test_calls_that_tools_send_run_next_in_call_order_through_the_gate",
        ),
        differs=(
            "No dunder keys: questions, answers and runs are records of the journal. The one "
            "reserved key, sent_calls, is private."
        ),
    ),
    "D1.8": Row(
        "Steps are numbered, and runs are limited",
        (
            "tests/loop/test_rows_gaps.py::test_steps_are_numbered_along_the_thread_and_hooks_of_a_phase_are_at_most_one",
            "tests/loop/test_run_limits.py::test_a_resumed_run_goes_on_counting_in_another_process",
        ),
        differs=(
            "Numbers go from 0 along the thread. Limits count calls, and continue to count after a "
            "resume."
        ),
    ),
    "D1.9": Row(
        "`Send` and `Command` start further work",
        (
            "tests/loop/test_hooks.py::test_calls_that_a_hook_sends_run_in_order_and_are_paired",
            "tests/loop/test_tool_returns.py::test_calls_that_tools_send_run_next_in_call_order_through_the_gate",
            "tests/loop/test_tool_returns.py::test_what_was_sent_survives_a_crash_between_the_tools_and_their_checkpoint",
            "tests/loop/test_gate_attacks.py::test_a_call_that_a_tool_sends_is_judged_also_in_a_chain",
        ),
        differs=(
            "`Send` names a tool and passes the policy. No goto to nodes, no parent graphs, no "
            "deferred nodes."
        ),
    ),
    "D1.10": Row(
        "Retry, cache and timeout policies",
        (
            "tests/loop/test_tool_policies.py::test_only_what_may_pass_is_tried_again_and_each_attempt_counts",
            "tests/loop/test_tool_policies.py::test_a_call_that_takes_too_long_is_answered_and_its_siblings_are_not_touched",
            "tests/loop/test_tool_policies.py::test_a_result_is_used_for_as_long_as_its_policy_says",
            "tests/tools/test_marks.py::test_only_what_may_pass_by_itself_is_tried_again",
            "tests/tools/test_marks.py::test_waits_grow_by_the_factor_up_to_the_cap",
            "tests/loop/test_cancellation.py::test_the_late_result_of_a_thread_is_thrown_away",
            "tests/loop/test_tool_policies.py::test_a_timeout_holds_for_a_tool_that_is_no_coroutine",
        ),
        differs="They belong to tools, async or not. No idle timeout, no error-handler nodes.",
    ),
    "D1.11": Row(
        "A drain finishes the step and saves it; the run can be resumed",
        (
            "tests/loop/test_cancellation.py::test_a_drain_from_outside_waits_for_the_step_and_a_new_message_may_come_instead",
            "tests/loop/test_cancellation.py::test_a_drain_from_a_tool_lets_its_siblings_finish_and_stores_the_step",
            "tests/loop/test_cancellation.py::test_a_drain_from_a_hook_finishes_the_step_and_the_run_can_go_on",
            "tests/loop/test_turns.py::test_a_drained_run_finishes_its_step_and_goes_on_when_resumed",
        ),
        differs="The run returns with the status paused instead of raising.",
    ),
    "D1.12": Row(
        "Cancelling stops the model and tools at once and keeps what has finished",
        (
            "tests/loop/test_cancellation.py::test_stopping_ends_the_models_stream_at_once",
            "tests/loop/test_cancellation.py::test_stopping_ends_running_tools_at_once_and_keeps_what_finished",
            "tests/loop/test_cancellation.py::test_a_deadline_stops_tools_keeps_what_finished_and_more_time_goes_on",
            "tests/loop/test_stray_cancellation.py::test_a_tool_that_raises_it_gets_an_error_result",
            "tests/loop/test_stray_cancellation.py::test_a_hook_that_raises_it_ends_the_run_by_name",
            "tests/loop/test_stray_cancellation.py::test_a_cancellation_goes_through_a_tool",
            "tests/loop/test_stray_cancellation.py::test_a_cancellation_goes_through_a_hook",
        ),
        differs="No timeout for a whole step.",
    ),
    "D3.1": Row(
        "Durability is sync, async or exit",
        (
            "tests/loop/test_driven_calls.py::test_a_delegated_run_waits_for_the_disk_at_each_step",
            "tests/loop/test_driven_calls.py::test_a_call_that_touches_only_the_thread_is_one_commit_with_its_input",
            "tests/loop/test_driven_calls.py::test_everything_waits_for_the_disk_before_a_tool_reaches_the_world",
            "tests/loop/test_crash_points.py::test_a_death_at_any_commit_changes_nothing_but_what_was_unfinished",
            "tests/checkpoint/test_processes.py::test_a_killed_process_loses_no_acknowledged_commit_and_tears_none",
            "tests/checkpoint/test_log_syncer.py::test_a_commit_that_does_not_wait_is_synced_soon_after",
            "tests/loop/test_durability_modes.py::test_a_run_ends_the_same_whatever_its_durability",
            "tests/loop/test_durability_modes.py::test_async_runs_the_tool_while_the_answer_is_stored",
            "tests/loop/test_durability_modes.py::test_exit_stores_the_input_at_once_and_the_steps_at_the_end",
            "tests/loop/test_durability_modes.py::test_what_a_file_held_is_stored_before_it_changes_with_all_steps_before",
            "tests/loop/test_durability_modes.py::test_that_a_once_call_begins_is_stored_before_it_does",
            "tests/loop/test_durability_modes.py::test_a_question_is_stored_with_all_steps_and_answered_elsewhere",
        ),
        differs=(
            "Sync by default. Input, questions, `once` marks and replaced files are always stored "
            "at once. Driven calls without outside effects sync within 20 ms."
        ),
    ),
    "D3.2": Row(
        (
            "`interrupt` asks a question; the code runs again from its start, and earlier answers "
            "are returned by position"
        ),
        (
            "tests/loop/test_interrupts.py::test_writes_before_a_question_are_dropped_and_made_once",
            "tests/loop/test_interrupts.py::test_a_tool_that_asks_twice_runs_from_its_start_but_its_siblings_do_not",
            "tests/loop/test_interrupts.py::test_every_kind_of_hook_can_ask_and_gets_its_answer",
            "tests/loop/test_durability.py::test_wrong_answers_are_refused_and_not_stored",
            "tests/loop/test_interrupts.py::test_of_several_answers_none_is_stored_when_one_is_wrong",
        ),
    ),
    "D3.3": Row(
        "Questions are answered by id, in any order, one or several at a time",
        (
            "tests/loop/test_interrupts.py::test_answers_in_any_order_and_grouping_lead_to_the_same_transcript",
            "tests/loop/test_interrupts.py::test_of_several_answers_none_is_stored_when_one_is_wrong",
            "tests/loop/test_interrupts.py::test_resuming_without_answers_asks_the_same_again_and_runs_nothing",
            "tests/loop/test_loop_laws.py::test_questions_may_be_answered_in_any_order_and_any_portions",
        ),
        differs="An answer always names its question. Unknown ids are refused.",
    ),
    "D3.4": Row(
        "What a question needs",
        (
            "tests/loop/test_rows_gaps.py::test_a_question_needs_neither_a_journal_nor_a_thread_id_but_data",
        ),
        differs=(
            "Neither a checkpointer nor a thread id: there is always a journal, and ids are "
            "generated."
        ),
    ),
    "D3.5": Row(
        "One tool or hook can ask several questions",
        (
            "tests/loop/test_interrupts.py::test_a_tool_that_asks_twice_runs_from_its_start_but_its_siblings_do_not",
            "tests/loop/test_interrupts.py::test_writes_before_a_question_are_dropped_and_made_once",
            "tests/mcp_servers/test_questions.py::test_the_questions_of_one_round_are_asked_together",
        ),
        differs="It runs again from its start for each; other calls of the step do not.",
    ),
    "D3.6": Row(
        "Static breakpoints are passed by a resume and stop again in the next run",
        (
            "tests/loop/test_breakpoints.py::test_a_run_stops_once_in_every_round_and_a_resume_goes_past",
            "tests/loop/test_breakpoints.py::test_a_star_stops_at_every_node",
            "tests/loop/test_breakpoints.py::test_a_stop_shows_the_state_and_is_passed_in_another_process",
            "tests/loop/test_breakpoints.py::test_state_changed_at_a_stop_is_what_runs_and_is_stopped_at_again",
        ),
    ),
    "D3.7": Row(
        "Each subagent has a namespace of its own",
        (
            "tests/loop/test_subagent_persistence.py::test_calls_of_one_subagent_share_nothing_in_parallel_or_one_after_the_other",
            "tests/loop/test_subagent_persistence.py::test_a_question_from_any_depth_resumes_where_it_was_asked",
            "tests/loop/test_rows_gaps.py::test_a_subagent_is_kept_in_the_journal_of_the_run_that_called_it",
            "tests/loop/test_subagent_calls.py::test_after_a_crash_inside_a_child_its_finished_calls_do_not_run_again",
        ),
        differs=(
            "Each call starts with fresh state and can be resumed. Shared memory (True) and none "
            "(False) are not offered."
        ),
    ),
    "D4.1": Row(
        "Replay runs everything after a checkpoint again, on a new branch",
        (
            "tests/loop/test_time_travel.py::test_a_replay_from_before_a_question_asks_anew_and_the_old_branch_stays",
            "tests/loop/test_time_travel.py::test_a_replay_at_a_question_asks_again_even_if_it_was_answered",
            "tests/loop/test_time_travel.py::test_a_replay_at_the_end_runs_nothing",
        ),
    ),
    "D4.2": Row(
        "`update_state` writes from outside; `as_node` decides what follows",
        (
            "tests/loop/test_time_travel.py::test_in_whose_name_a_write_is_made_decides_what_follows",
            "tests/loop/test_time_travel.py::test_results_written_in_the_name_of_the_tools_take_the_place_of_the_calls",
            "tests/loop/test_time_travel.py::test_calls_written_in_the_name_of_the_model_pass_the_gate",
            "tests/loop/test_durability.py::test_a_fork_goes_back_and_keeps_the_history",
        ),
        differs=(
            "as_node is input, model, tools or end; `fork` copies. A single parallel call cannot "
            "be named."
        ),
    ),
    "D4.3": Row(
        "`bulk_update_state` writes several steps",
        ("tests/loop/test_time_travel.py::test_several_steps_can_be_written_at_once",),
        differs="One after the other: steps before a refused one stay.",
    ),
    "D4.4": Row(
        "The state and the history of a thread can be read",
        (
            "tests/loop/test_time_travel.py::test_pages_of_history_are_newest_first_and_together_are_all_of_it",
            "tests/checkpoint/test_conformance.py::test_history_pages_from_the_newest",
            "tests/loop/test_breakpoints.py::test_a_stop_shows_the_state_and_is_passed_in_another_process",
            "tests/middleware/test_expected.py::test_the_history_of_a_long_thread_is_listed_without_reading_a_state",
        ),
        differs="The history lists checkpoints without values; get_state reads one. No filter.",
    ),
    "D4.5": Row(
        "Time travel includes subagents",
        (
            "tests/loop/test_subagent_persistence.py::test_after_a_fork_of_its_parent_a_subagent_starts_afresh",
            "tests/loop/test_subagent_persistence.py::test_a_fork_from_before_the_call_keeps_the_old_branch_with_its_report",
            "tests/loop/test_subagent_persistence.py::test_a_taken_over_run_finds_the_subagents_of_the_run_before",
        ),
        differs=(
            "A subagent follows its parent. Its steps can be read in the journal, not continued "
            "alone."
        ),
    ),
    "D4.6": Row(
        "Old threads work with new code",
        (
            "tests/loop/test_time_travel.py::test_an_old_thread_is_read_by_code_whose_state_has_changed",
            "tests/checkpoint/test_upgrade.py::test_an_upgraded_journal_says_the_same",
            "tests/checkpoint/test_sqlite.py::test_a_newer_database_is_refused_untouched",
            "tests/loop/test_time_travel.py::test_a_stored_value_that_its_key_no_longer_takes_is_an_error_and_stays",
        ),
        differs=(
            "Keys may come and go. A stored value that no longer fits its type is an error. No "
            "migration hook."
        ),
    ),
    "D8.1": Row(
        "Stream modes: values, updates, messages, custom, checkpoints, tasks, debug",
        (
            "tests/loop/test_streams.py::test_values_are_the_state_a_caller_may_see_after_each_step",
            "tests/loop/test_streams.py::test_updates_are_what_each_step_wrote_and_by_whom",
            "tests/loop/test_streams.py::test_messages_are_the_pieces_of_answers_in_order",
            "tests/loop/test_streams.py::test_custom_events_come_from_hooks_wraps_and_tools",
            "tests/loop/test_streams.py::test_checkpoints_are_the_commits_of_the_journal",
            "tests/loop/test_streams.py::test_tasks_say_when_calls_begin_and_end_and_how",
            "tests/loop/test_streams.py::test_debug_is_checkpoints_and_tasks_in_one_stream",
            "tests/loop/test_streams.py::test_several_modes_at_once_are_one_gapless_order",
        ),
    ),
    "D8.2": Row(
        "Events have one shape",
        (
            "tests/loop/test_streams.py::test_several_modes_at_once_are_one_gapless_order",
            "tests/loop/test_sync_api.py::test_a_stream_is_the_events_and_last_the_result",
            "tests/loop/test_interrupts.py::test_answers_in_any_order_and_grouping_lead_to_the_same_transcript",
        ),
        differs=(
            "Event with mode, path, number and data. The last item is the RunResult, with the open "
            "questions."
        ),
    ),
    "D8.3": Row(
        "Typed projections of a run",
        (
            "tests/loop/test_streams.py::test_tasks_say_when_calls_begin_and_end_and_how",
            "tests/loop/test_streams.py::test_parallel_subagents_are_told_apart_by_call",
        ),
        differs="Not offered: modes and paths separate messages, tool calls and subagents.",
    ),
    "D8.4": Row(
        "Streams include subagents; each event carries the path to its agent",
        (
            "tests/loop/test_streams.py::test_events_of_a_subagent_carry_the_path_to_it",
            "tests/loop/test_streams.py::test_parallel_subagents_are_told_apart_by_call",
        ),
    ),
    "D8.5": Row(
        "Streams can be filtered",
        (
            "tests/loop/test_streams.py::test_internal_model_calls_are_not_in_the_stream_of_messages",
            "tests/loop/test_streams.py::test_values_are_the_state_a_caller_may_see_after_each_step",
            "tests/loop/test_streams.py::test_no_mode_is_only_the_result",
        ),
        differs=(
            "Internal model calls and hidden keys are left out. No tags, print_mode or output_keys."
        ),
    ),
    "D8.6": Row(
        "What is redacted never appears in a stream",
        (
            "tests/loop/test_rows_gaps.py::test_what_a_redactor_removes_from_a_result_is_in_no_stream_and_no_checkpoint",
            "tests/middleware/test_pii.py::test_a_run_full_of_secrets_leaves_none_anywhere",
            "tests/middleware/test_pii.py::test_streamed_text_is_the_stored_text",
            "tests/redaction/test_streams.py::test_any_cut_gives_the_same_text",
        ),
        differs="LangChain redacts the newest stream version only.",
    ),
    "D8.7": Row(
        "A client that lost its connection can read the events it missed",
        (
            "tests/loop/test_streams.py::test_several_modes_at_once_are_one_gapless_order",
            "tests/loop/test_stream_consumers.py::test_a_consumer_that_goes_away_harms_nothing",
            "tests/loop/test_event_log.py::test_the_log_goes_on_over_a_pause_and_a_new_process",
            "tests/e2e/test_run_events.py::test_another_client_of_the_next_server_reads_what_was_missed_page_by_page",
        ),
        differs="LangGraph keeps no events. Here token deltas are not kept, but the answer is.",
    ),
}
