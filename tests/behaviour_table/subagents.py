"""Subagents, in the foreground and the background (C6, C7)."""

from tests.behaviour_table.row import Row

ROWS: dict[str, Row] = {
    "C6.1": Row(
        (
            "A subagent has a name, description, prompt, tools, model, middleware, skills, rules, "
            "limits and an answer schema"
        ),
        (
            "tests/skills/test_subagent_registry.py::test_a_file_describes_a_subagent",
            "tests/skills/test_subagent_registry.py::test_what_is_left_out_is_inherited",
            "tests/skills/test_subagent_registry.py::test_two_files_of_one_name_are_an_error_not_a_lottery",
            "tests/skills/test_subagent_registry.py::test_an_unknown_key_is_refused_with_those_that_are_allowed",
            "tests/skills/test_subagent_registry.py::test_a_file_states_limits_permissions_and_mode",
            "tests/subagents/test_declared.py::test_a_model_of_its_own_answers_for_it",
            "tests/subagents/test_declared.py::test_its_middleware_is_added_to_its_callers_and_replaces_one_of_the_same_name",
            "tests/subagents/test_declared.py::test_a_structured_answer_comes_back_as_json_and_as_data",
        ),
    ),
    "C6.2": Row(
        "An agent or a function can be a subagent",
        (
            "tests/subagents/test_prebuilt.py::test_any_function_can_be_a_subagent_and_returns_what_a_tool_may",
            "tests/subagents/test_prebuilt.py::test_an_agent_runs_with_its_own_model_and_tools_and_the_callers_policy_holds_too",
            "tests/subagents/test_prebuilt.py::test_what_cannot_be_a_subagent_is_refused_when_it_is_made",
        ),
        differs="The caller's policy applies to it too.",
    ),
    "C6.3": Row(
        "A general-purpose subagent is included, and can be replaced or turned off",
        (
            "tests/skills/test_subagent_registry.py::test_general_purpose_is_there_without_files_and_can_be_replaced",
            "tests/test_deep_agent.py::test_the_general_purpose_subagent_has_its_callers_own_tools",
            "tests/test_deep_agent.py::test_memory_is_for_the_main_agent_and_skills_for_all",
            "tests/profiles/test_profiled_agents.py::test_without_it_and_others_there_is_no_way_to_delegate",
            "tests/profiles/test_profiled_agents.py::test_a_general_purpose_subagent_of_ones_own_stays",
        ),
    ),
    "C6.4": Row(
        "`task` takes a description and a subagent, and returns its report",
        (
            "tests/test_deep_agent.py::test_an_unknown_subagent_is_answered_with_those_there_are",
            "tests/loop/test_structured_runs.py::test_a_subagents_answer_reaches_its_parent_as_json",
            "tests/subagents/test_declared.py::test_a_subagent_that_falls_silent_is_asked_for_its_report",
            "tests/middleware/test_delegated_work.py::test_arguments_that_task_does_not_have_are_refused",
        ),
        differs="An unknown subagent is an error result.",
    ),
    "C6.5": Row(
        (
            "A subagent gets the task and the state that is shared, not the messages, todos or "
            "private keys of its caller"
        ),
        (
            "tests/subagents/test_shared_state.py::test_private_state_and_todos_leak_neither_down_nor_up_nor_sideways",
            "tests/subagents/test_shared_state.py::test_a_subagent_sees_none_of_its_callers_messages",
            "tests/middleware/test_delegated_work.py::test_what_a_caller_pinned_or_loaded_is_not_its_subagents",
            "tests/test_deep_agent.py::test_a_subagent_gets_its_own_prompt_and_only_its_tools",
            "tests/loop/test_structured_runs.py::test_a_subagents_answer_is_not_its_parents",
        ),
    ),
    "C6.6": Row(
        "A subagent's files and shared state come back",
        (
            "tests/subagents/test_shared_state.py::test_parallel_subagents_that_write_different_files_both_succeed",
            "tests/loop/test_subagent_calls.py::test_a_child_answers_and_its_shared_state_comes_back",
            "tests/middleware/test_delegated_work.py::test_two_subagents_that_write_one_plain_key_do_not_end_the_run",
            "tests/loop/test_routing.py::test_of_parallel_writers_of_a_plain_key_the_one_that_finishes_second_gets_an_error",
            "tests/middleware/test_refused_results.py::test_the_report_of_a_subagent_whose_state_is_refused_is_read_by_its_caller",
            "tests/middleware/test_refused_results.py::test_what_joins_is_kept_of_a_refused_result_and_the_subagent_can_go_on",
        ),
        differs=(
            "Two subagents that write one plain key do not end the run: the second gets an error "
            "result, with its report."
        ),
    ),
    "C6.7": Row(
        "A subagent can be a fork that starts with its caller's history and prompt",
        (
            "tests/subagents/test_forks.py::test_a_fork_shares_its_callers_prefix_byte_for_byte_and_finds_it_cached",
            "tests/subagents/test_forks.py::test_it_has_its_callers_messages_with_open_calls_closed_and_reports_alone",
            "tests/subagents/test_forks.py::test_a_fork_does_not_fork_but_may_hand_work_to_others_within_the_depth",
        ),
    ),
    "C6.8": Row(
        "A finished subagent can be continued, and its transcript is kept",
        (
            "tests/subagents/test_continuing.py::test_a_result_has_a_handle_in_text_and_data_and_with_it_the_subagent_goes_on",
            "tests/subagents/test_continuing.py::test_later_runs_of_the_thread_and_other_processes_can_go_on",
            "tests/subagents/test_continuing.py::test_an_unknown_id_is_an_error_that_lists_those_of_the_thread",
            "tests/middleware/test_delegated_work.py::test_the_steps_of_a_finished_subagent_stay_in_the_journal",
        ),
        differs="In DeepAgents each call starts fresh, and the transcript is not kept.",
    ),
    "C6.9": Row(
        "An error in a subagent is a result; its siblings continue",
        (
            "tests/loop/test_subagent_calls.py::test_a_failing_child_is_a_result_and_its_siblings_go_on",
            "tests/middleware/test_delegated_work.py::test_a_tool_that_fails_inside_of_a_subagent_ends_neither_it_nor_its_caller",
        ),
        differs="In DeepAgents it ends the caller's run.",
    ),
    "C6.10": Row(
        "Subagents have limits of depth, number, tokens, cost and time",
        (
            "tests/subagents/test_child_limits.py::test_a_subagent_that_goes_on_past_its_bound_ends_with_a_result_that_names_it",
            "tests/subagents/test_child_limits.py::test_parallel_tasks_of_one_subagent_have_a_budget_each",
            "tests/loop/test_run_limits.py::test_subagents_are_nested_no_deeper_than_allowed",
            "tests/loop/test_run_limits.py::test_an_answer_starts_no_more_subagents_than_allowed_and_the_next_may_again",
            "tests/loop/test_run_limits.py::test_a_subagents_calls_count_and_it_leaves_a_turn_for_its_parent",
            "tests/loop/test_run_limits.py::test_siblings_below_share_one_budget_of_tool_calls",
            "tests/subagents/test_child_limits.py::test_a_subagent_is_stopped_in_the_middle_of_a_call_when_its_time_is_over",
        ),
        differs="DeepAgents has no limits for subagents.",
    ),
    "C6.11": Row(
        "A question of a subagent, at any depth, pauses the run and resumes where it was asked",
        (
            "tests/loop/test_subagent_calls.py::test_parallel_children_ask_labelled_questions_and_are_answered_in_any_order",
            "tests/loop/test_subagent_persistence.py::test_a_question_from_any_depth_resumes_where_it_was_asked",
            "tests/loop/test_interrupts.py::test_all_questions_of_all_subagents_can_be_answered_at_once",
            "tests/loop/test_subagent_calls.py::test_after_a_crash_inside_a_child_its_finished_calls_do_not_run_again",
        ),
    ),
    "C6.12": Row(
        "Every event of a subagent carries the path to it",
        (
            "tests/subagents/test_events.py::test_every_event_of_a_nested_subagent_carries_its_path",
            "tests/loop/test_streams.py::test_events_of_a_subagent_carry_the_path_to_it",
            "tests/loop/test_streams.py::test_parallel_subagents_are_told_apart_by_call",
        ),
    ),
    "C6.13": Row(
        "The prompt says when to delegate",
        (
            "tests/test_prompt_snapshots.py::test_a_model_is_told_what_the_snapshot_says",
            "tests/profiles/test_profiled_agents.py::test_tools_get_other_descriptions_wherever_they_come_from",
        ),
        differs="The description of `task` can be replaced like any tool's.",
    ),
    "C7.1": Row(
        "A subagent can run on another server",
        (
            "tests/e2e/test_remote_subagents.py::test_a_remote_subagent_answers_like_any_other",
            "tests/e2e/test_remote_subagents.py::test_what_it_asks_is_asked_here_and_answered_there_after_a_restart",
            "tests/e2e/test_remote_subagents.py::test_a_server_that_cannot_be_reached_is_an_error_result",
            "tests/e2e/test_remote_subagents.py::test_the_task_of_any_other_server_is_called_and_its_result_is_the_answer",
        ),
        differs="On any MCP server with a tool that takes a task. No webhooks.",
    ),
    "C7.2": Row(
        "Background subagents can be started, checked, given messages, cancelled and listed",
        (
            "tests/subagents/background/test_launcher.py::test_a_task_goes_on_while_its_caller_ends_and_is_told_of_once",
            "tests/subagents/background/test_launcher.py::test_tasks_run_side_by_side_and_are_waited_for_with_one_call",
            "tests/subagents/background/test_launcher.py::test_a_message_reaches_a_running_task_before_its_next_model_call",
            "tests/subagents/background/test_launcher.py::test_a_running_task_is_cancelled_and_the_model_is_not_told_again",
            "tests/subagents/background/test_launcher.py::test_tasks_beyond_the_bound_wait_for_their_turn",
            "tests/subagents/background/test_launcher.py::test_wrong_arguments_are_error_results",
        ),
    ),
    "C7.3": Row(
        "Background subagents need no server, and continue after a restart",
        (
            "tests/e2e/test_background_tasks.py::test_a_task_outlives_the_run_that_started_it_and_is_a_run_like_others",
            "tests/subagents/background/test_restart.py::test_leaving_stops_tasks_and_the_next_one_goes_on_with_them",
            "tests/subagents/background/test_restart.py::test_a_killed_process_loses_no_task_repeats_no_call_and_the_model_is_told_once",
        ),
        differs="DeepAgents needs a server for them.",
    ),
    "C7.4": Row(
        "The caller gets one note when a background subagent finishes, fails or asks",
        (
            "tests/subagents/background/test_launcher.py::test_a_task_goes_on_while_its_caller_ends_and_is_told_of_once",
            "tests/subagents/background/test_launcher.py::test_what_a_task_asks_is_told_to_its_caller_once",
            "tests/subagents/background/test_launcher.py::test_a_task_that_fails_is_told_with_its_reason_and_can_go_on",
            "tests/subagents/background/test_restart.py::test_a_killed_process_loses_no_task_repeats_no_call_and_the_model_is_told_once",
        ),
    ),
}
