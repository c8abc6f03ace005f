"""Shell, tool selection, todo list, search, caching, MCP servers (B11 to B20)."""

from tests.behaviour_table.row import Row

ROWS: dict[str, Row] = {
    "B11": Row(
        "ShellToolMiddleware keeps one shell for all calls of a run",
        (
            "tests/middleware/test_shell.py::test_a_session_lasts_from_call_to_call",
            "tests/middleware/test_shell.py::test_restart_opens_a_new_shell_and_may_run_a_command",
            "tests/middleware/test_shell.py::test_rules_redact_what_is_shown_and_kept",
            "tests/middleware/test_shell.py::test_wrong_arguments_are_refused_when_it_is_built",
            "tests/middleware/test_shell.py::test_a_waiting_run_keeps_its_session_in_this_process",
        ),
    ),
    "B11.1": Row(
        "Commands run in a sandbox, in a container or on the host, with limits",
        (
            "tests/shell/test_policies.py::test_bounds_that_are_none_are_refused",
            "tests/shell/test_policies.py::test_limits_hold_for_what_the_shell_runs",
            "tests/shell/test_policies.py::test_a_container_is_started_with_what_the_policy_says",
            "tests/shell/test_policies.py::test_a_sandbox_shows_the_workspace_and_little_else",
            "tests/middleware/test_shell.py::test_a_timeout_is_bounded_by_the_policy",
            "tests/middleware/test_shell.py::test_by_default_commands_run_in_a_sandbox",
        ),
        differs="Bubblewrap is the sandbox and the default; there is no Codex policy.",
    ),
    "B11.2": Row(
        "Missing newlines, reading input, timeouts, long output, restarts and shutdown are handled",
        (
            "tests/middleware/test_shell.py::test_output_without_a_last_newline_is_no_timeout",
            "tests/middleware/test_shell.py::test_a_command_that_reads_its_input_finds_none",
            "tests/middleware/test_shell.py::test_a_timeout_keeps_the_output_and_says_what_is_lost",
            "tests/middleware/test_shell.py::test_of_long_output_both_ends_are_shown_and_a_file_has_all",
            "tests/middleware/test_shell.py::test_restart_opens_a_new_shell_and_may_run_a_command",
            "tests/shell/test_loop_stays_free.py::test_the_event_loop_goes_on_while_a_shell_waits",
            "tests/shell/test_what_commands_say.py::test_both_streams_come_back_in_the_order_they_were_written",
        ),
        differs="stdout and stderr come back in the order they were written, without labels.",
    ),
    "B12": Row(
        "LLMToolSelectorMiddleware lets a model choose the tools",
        (
            "tests/middleware/test_tool_selection.py::test_only_the_chosen_tools_are_offered_in_their_own_order",
            "tests/middleware/test_tool_selection.py::test_one_turn_asks_once_and_the_next_asks_again",
            "tests/middleware/test_tool_selection.py::test_tools_of_the_provider_and_always_included_ones_are_kept_and_not_counted",
            "tests/middleware/test_tool_selection.py::test_a_policy_decides_without_a_choice_and_its_decision_is_kept_too",
            "tests/middleware/test_tool_selection.py::test_without_a_request_or_a_choice_nothing_is_asked",
        ),
        differs="It chooses once per turn, not at every step.",
    ),
    "B13": Row(
        "LLMToolEmulator lets a model invent the results of tools",
        (
            "tests/middleware/test_tool_emulation.py::test_a_made_up_result_says_so_to_the_model_and_to_programs",
            "tests/middleware/test_tool_emulation.py::test_the_named_tools_are_emulated_and_an_empty_list_names_none",
        ),
        differs="No temperature is set: current APIs refuse it.",
    ),
    "B14": Row(
        (
            "TodoListMiddleware: a list that is shown again after a summary, seen by subagents, "
            "and changed in part"
        ),
        (
            "tests/middleware/test_todo_list.py::test_a_write_replaces_the_list_and_says_everything_in_text_and_data",
            "tests/middleware/test_todo_list.py::test_of_several_lists_in_one_answer_the_first_is_written",
            "tests/middleware/test_todo_list.py::test_the_prompt_is_sent_only_along_with_the_tool",
            "tests/middleware/test_todo_list.py::test_a_list_that_compaction_cut_is_shown_again_at_the_end",
            "tests/middleware/test_expected.py::test_a_todo_list_outlives_the_summary_of_the_call_that_wrote_it",
            "tests/middleware/test_todo_list.py::test_a_partial_write_changes_adds_and_removes_only_what_it_names",
            "tests/middleware/test_todo_list.py::test_a_subagent_sees_the_main_list_once_and_keeps_one_of_its_own",
        ),
        differs="Of several lists in one answer the first is written; the others get errors.",
    ),
    "B15": Row(
        "File search by name, newest first, and by text: confined to the root, in bounded pages",
        (
            "tests/middleware/test_file_search.py::test_glob_finds_at_any_depth_newest_first",
            "tests/middleware/test_file_search.py::test_glob_takes_braces_directories_and_patterns_from_the_root",
            "tests/middleware/test_file_search.py::test_grep_returns_files_lines_or_counts",
            "tests/middleware/test_file_search.py::test_ways_out_and_nonsense_are_errors_for_the_model",
            "tests/middleware/test_file_search.py::test_links_that_lead_out_are_not_followed",
            "tests/middleware/test_file_search.py::test_results_come_in_pages_one_after_the_other_past_every_cap",
            "tests/backends/test_backends.py::test_globs_that_explode_are_refused",
        ),
        differs="LangChain returns everything at once.",
    ),
    "B16": Row(
        "ProviderToolSearchMiddleware defers tools that the provider finds by search",
        (
            "tests/middleware/test_provider_tool_search.py::test_all_or_the_named_tools_are_put_off_and_a_search_tool_is_added",
            "tests/middleware/test_provider_tool_search.py::test_another_provider_is_refused_before_anything_is_sent",
            "tests/middleware/test_provider_tool_search.py::test_an_agent_finds_and_calls_a_tool_through_the_messages_api",
        ),
        differs="Anthropic's models only; with another, the run fails before the model is asked.",
    ),
    "B17": Row(
        "PromptCachingMiddleware sets at most four cache breakpoints",
        (
            "tests/middleware/test_prompt_caching.py::test_tools_stable_prompt_and_two_places_in_the_messages_are_marked",
            "tests/middleware/test_prompt_caching.py::test_there_are_never_more_breakpoints_than_allowed",
            "tests/middleware/test_prompt_caching.py::test_a_longer_life_reaches_the_provider_unless_the_request_says_otherwise",
            "tests/middleware/test_prompt_caching.py::test_a_model_without_breakpoints_can_be_ignored_or_refused",
            "tests/middleware/test_prompt_cache_hits.py::test_each_request_begins_with_the_whole_one_before",
        ),
    ),
    "B18": Row(
        "Anthropic's own bash, text-editor and memory tools",
        differs=(
            "Not offered: shell, file tools and memory work with any model. Provider tools can be "
            "passed through (A1.2)."
        ),
    ),
    "B19": Row(
        "Model calls made by middleware never appear in the stream of messages",
        (
            "tests/loop/test_streams.py::test_internal_model_calls_are_not_in_the_stream_of_messages",
            "tests/middleware/test_tool_selection.py::test_the_choice_is_metered_but_is_no_answer_and_no_event",
            "tests/middleware/test_tool_emulation.py::test_what_it_costs_counts_toward_the_limits_and_nothing_of_it_is_streamed",
            "tests/middleware/test_rubric.py::test_evaluations_are_reported_but_the_grader_is_not_streamed",
        ),
        differs="In LangChain they appear in older stream versions.",
    ),
    "B20": Row(
        "Tools of MCP servers can be used",
        (
            "tests/mcp_servers/test_tools.py::test_tools_are_offered_under_their_servers_name_and_run",
            "tests/mcp_servers/test_config.py::test_a_string_can_never_start_a_process",
            "tests/mcp_servers/test_tools.py::test_a_failing_tool_is_an_error_result_and_the_run_goes_on",
            "tests/mcp_servers/test_failures.py::test_a_server_that_cannot_be_used_is_left_out_and_the_model_knows_why",
            "tests/mcp_servers/test_tools.py::test_hints_are_read_with_the_protocols_defaults",
        ),
        differs="Failures of the connection are error results too.",
    ),
    "B20.1": Row(
        "A question of an MCP server becomes a durable question of the run",
        (
            "tests/mcp_servers/test_questions.py::test_a_question_waits_for_its_answer_and_the_tool_goes_on_with_it",
            "tests/mcp_servers/test_questions.py::test_the_questions_of_one_round_are_asked_together",
            "tests/mcp_servers/test_questions.py::test_what_is_declined_is_not_done",
            "tests/mcp_servers/test_questions.py::test_a_sealed_state_goes_on_where_it_was",
            "tests/mcp_servers/test_questions.py::test_another_process_can_go_on_with_the_answer",
        ),
    ),
    "B20.2": Row(
        (
            "Rules can use the hints of MCP tools, such as destructive; the MCP SDK is imported on "
            "first use"
        ),
        (
            "tests/test_policy.py::test_rules_match_hints_and_servers",
            "tests/mcp_servers/test_tools.py::test_a_policy_judges_them_by_server_and_hints",
            "tests/mcp_servers/test_config.py::test_naming_servers_does_not_import_the_sdk_or_start_anything",
        ),
    ),
    "B20.3": Row(
        "An MCP server offers threads, questions, progress and cancellation",
        (
            "tests/e2e/test_transports_and_eras.py::test_a_client_lists_drives_and_delegates",
            "tests/e2e/test_transports_and_eras.py::test_a_long_run_is_a_status_that_can_be_waited_for_and_cancelled",
            "tests/e2e/test_approvals.py::test_a_delegated_run_asks_the_person_and_goes_on",
            "tests/e2e/test_restart.py::test_a_killed_run_is_finished_by_the_next_server_and_repeats_no_call",
        ),
        differs="The libraries have none.",
    ),
}
