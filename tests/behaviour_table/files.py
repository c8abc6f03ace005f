"""File tools, backends, summaries of a deep agent (C1 to C3)."""

from tests.behaviour_table.row import Row

ROWS: dict[str, Row] = {
    "C1.1": Row(
        "`tools=` selects file tools; read_file is required",
        (
            "tests/middleware/test_filesystem.py::test_tools_can_be_left_out",
            "tests/middleware/test_filesystem_guards.py::test_the_prompt_speaks_of_what_is_there",
            "tests/middleware/test_filesystem_guards.py::test_prompt_and_descriptions_can_be_given",
            "tests/test_deep_agent.py::test_the_model_sees_its_tools_and_the_sections_of_its_prompt",
            "tests/middleware/test_execute.py::test_without_a_directory_commands_have_nothing_but_the_system",
        ),
        differs="`execute` depends on the execution policy, not on the backend.",
    ),
    "C1.2": Row(
        "ls lists a directory, in pages",
        (
            "tests/middleware/test_filesystem.py::test_ls_lists_with_sizes",
            "tests/middleware/test_filesystem.py::test_long_lists_come_in_pages_that_skip_nothing",
            "tests/middleware/test_filesystem.py::test_odd_names_stay_on_one_line",
        ),
        differs="A relative path starts at the root instead of being refused.",
    ),
    "C1.3": Row(
        "read_file returns one header line, then the text verbatim, in pages that skip nothing",
        (
            "tests/middleware/test_filesystem.py::test_a_read_has_one_header_line_then_verbatim_text",
            "tests/middleware/test_filesystem.py::test_a_page_names_the_next",
            "tests/backends/test_reading_in_pages.py::test_pages_put_together_are_the_file_with_every_blank_line",
            "tests/middleware/test_filesystem.py::test_wrong_page_arguments_are_refused",
            "tests/middleware/test_filesystem.py::test_empty_files_and_ends_are_said",
        ),
        differs="A negative offset is refused; the error says what is accepted.",
    ),
    "C1.4": Row(
        "Images and documents are shown to the model, other binary files are named",
        (
            "tests/backends/test_media.py::test_a_media_file_comes_as_a_block_of_its_kind",
            "tests/server/test_face.py::test_who_reads_an_image_or_a_recording_gets_it",
            "tests/middleware/test_filesystem.py::test_images_are_shown_and_other_binaries_named",
            "tests/middleware/test_documents.py::test_a_pdf_that_is_read_reaches_the_model_after_a_restart_too",
            "tests/middleware/test_documents.py::test_what_a_model_does_not_take_becomes_a_notice",
            "tests/checkpoint/test_packing.py::test_a_large_value_is_stored_once_whoever_holds_it",
        ),
        differs=(
            "The content decides, not the extension. The journal stores large values once, so "
            "nothing is offloaded."
        ),
    ),
    "C1.5": Row(
        "Audio and video are shown to a model that takes them",
        (
            "tests/models/test_vendors.py::test_a_film_and_a_recording_that_are_read_reach_a_model_that_takes_them",
            "tests/models/test_vendors.py::test_gemini_is_sent_every_recording_and_film_that_it_takes",
            "tests/middleware/test_documents.py::test_what_a_model_does_not_take_becomes_a_notice",
        ),
        differs="The file is sent whole, where others send frames of it; nothing is decoded here.",
    ),
    "C1.6": Row(
        "write_file creates or replaces a file",
        (
            "tests/middleware/test_filesystem.py::test_a_write_creates_then_replaces",
            "tests/middleware/test_filesystem.py::test_text_that_is_no_text_is_refused",
        ),
    ),
    "C1.7": Row(
        "An edit needs a read first, and is refused if the file has changed since",
        (
            "tests/middleware/test_filesystem.py::test_an_edit_needs_a_read_first",
            "tests/middleware/test_filesystem.py::test_an_edit_of_a_file_that_somebody_changed_is_refused",
            "tests/middleware/test_filesystem.py::test_replacements_are_counted",
            "tests/middleware/test_filesystem.py::test_an_edit_that_cannot_be_made_says_why",
        ),
        differs="In DeepAgents only the tool's description asks for it.",
    ),
    "C1.8": Row(
        "delete_file deletes a file",
        (
            "tests/middleware/test_filesystem_guards.py::test_a_file_is_deleted_and_directories_are_not",
            "tests/middleware/test_filesystem_guards.py::test_delete_file_is_there_only_when_it_is_named",
        ),
        differs="One file at a time, never a directory, and only if the author adds the tool.",
    ),
    "C1.9": Row(
        (
            "glob matches at any depth, with hidden files and braces, within a limit of time and "
            "results"
        ),
        (
            "tests/backends/test_semantics.py::test_globs",
            "tests/backends/test_backends.py::test_glob_results_are_newest_first_and_capped",
            "tests/backends/test_backends.py::test_globs_that_explode_are_refused",
            "tests/backends/test_directory.py::test_a_search_over_its_time_says_so",
        ),
    ),
    "C1.10": Row(
        "grep has three output modes and a cap",
        (
            "tests/middleware/test_filesystem.py::test_grep_modes",
            "tests/backends/test_backends.py::test_grep_is_capped_and_says_so",
            "tests/backends/test_backends.py::test_a_wrong_expression_says_how_to_search_literally",
            "tests/backends/test_backends.py::test_an_expression_that_elsewhere_runs_for_ever_finds_its_line_at_once",
        ),
        differs=(
            "The pattern is a regular expression; the error for a wrong one says how to search "
            "literally."
        ),
    ),
    "C1.11": Row(
        "The result of a command that failed is marked as an error",
        (
            "tests/middleware/test_execute.py::test_a_result_says_whether_the_command_succeeded",
            "tests/middleware/test_execute.py::test_a_timeout_keeps_what_was_written",
            "tests/middleware/test_execute.py::test_wrong_arguments_run_nothing",
            "tests/middleware/test_execute.py::test_of_long_output_both_ends_are_shown_and_the_rest_can_be_read",
            "tests/middleware/test_shell.py::test_a_command_that_fails_is_an_error_with_its_exit_code",
        ),
        differs="In DeepAgents its status is success.",
    ),
    "C1.12": Row(
        "Long tool results move to a file; the model sees both ends and the path",
        (
            "tests/middleware/test_filesystem.py::test_long_results_move_to_a_file",
            "tests/middleware/test_filesystem.py::test_short_results_and_the_file_tools_are_left_alone",
            "tests/middleware/test_filesystem.py::test_any_call_id_makes_a_file_in_its_directory",
            "tests/middleware/test_filesystem.py::test_images_of_a_long_result_stay",
            "tests/middleware/test_kept_results.py::test_an_evicted_result_is_read_back_by_the_model_page_by_page",
            "tests/middleware/test_kept_results.py::test_a_replay_leaves_one_result_and_one_file_of_an_evicted_call",
            "tests/middleware/test_kept_results.py::test_of_calls_with_one_id_each_long_result_is_kept",
        ),
        differs=(
            "From 60,000 characters. File names end with a digest, so repeated call ids lose "
            "nothing."
        ),
    ),
    "C1.13": Row(
        "Long output of commands is kept in a file; the model sees both ends",
        (
            "tests/middleware/test_execute.py::test_of_long_output_both_ends_are_shown_and_the_rest_can_be_read",
            "tests/middleware/test_execute.py::test_only_the_beginning_of_very_long_output_is_kept",
            "tests/middleware/test_jobs.py::test_output_is_read_page_by_page",
        ),
        differs="Commands run on this machine, so no output crosses a network.",
    ),
    "C1.14": Row(
        "The model sees a very long user message as a preview, and can read the rest",
        (
            "tests/middleware/test_filesystem_guards.py::test_a_very_long_message_is_shown_as_a_preview_and_kept_whole",
            "tests/middleware/test_filesystem_guards.py::test_short_messages_are_sent_as_they_are",
        ),
    ),
    "C1.15": Row(
        "One answer changes a file once, and parallel subagents do not undo each other's changes",
        (
            "tests/middleware/test_filesystem.py::test_two_changes_of_one_file_in_one_answer_do_not_overwrite_each_other",
            "tests/middleware/test_filesystem_guards.py::test_the_same_file_is_changed_once_in_an_answer",
            "tests/middleware/test_filesystem_guards.py::test_parallel_subagents_do_not_undo_each_others_changes",
        ),
        differs="DeepAgents guards the calls of one answer only.",
    ),
    "C1.16": Row(
        "Media that a provider refuses are replaced by text",
        (
            "tests/middleware/test_unsupported_content.py::test_a_request_that_the_api_would_refuse_goes_through",
            "tests/middleware/test_unsupported_content.py::test_an_image_that_is_too_large_becomes_a_notice",
        ),
        differs="Before the request is sent, by type and size, not after a refusal.",
    ),
    "C1.17": Row(
        "Paths cannot lead out of the root, and odd ones are errors, never crashes",
        (
            "tests/backends/test_confinement.py::test_no_path_leads_out",
            "tests/middleware/test_hostile_arguments.py::test_every_call_of_a_file_tool_is_answered_and_stays_inside",
            "tests/middleware/test_filesystem_guards.py::test_dots_inside_of_a_name_are_no_climb",
            "tests/policy/test_rules.py::test_no_spelling_of_a_path_slips_past",
            "tests/backends/test_directory.py::test_native_paths_become_virtual",
            "tests/backends/test_directory.py::test_windows_paths_become_virtual",
            "tests/backends/test_composite.py::test_native_paths_of_a_mounted_directory_are_understood",
        ),
        differs="In DeepAgents some paths end the run.",
    ),
    "C1.18": Row(
        "File tools and commands use the same paths",
        (
            "tests/backends/test_directory.py::test_a_path_that_reads_both_ways_counts_from_the_root_of_the_files",
            "tests/middleware/test_filesystem.py::test_the_policy_sees_canonical_paths",
            "tests/middleware/test_execute.py::test_commands_and_file_tools_share_their_paths",
            "tests/middleware/test_execute.py::test_without_a_sandbox_the_paths_are_those_of_the_machine",
        ),
        differs="In DeepAgents commands see other paths than file tools.",
    ),
    "C2.1": Row(
        "A backend has file operations with typed errors; programs can upload and download files",
        (
            "tests/backends/test_backends.py::test_failures_have_codes",
            "tests/backends/test_backends.py::test_what_was_written_is_read",
            "tests/backends/test_store_backend.py::test_a_store_that_fails_is_a_tool_error_not_a_crash",
            "tests/backends/test_transfer.py::test_each_path_has_its_own_result_and_the_others_go_on",
            "tests/backends/test_transfer.py::test_what_is_put_in_before_a_run_is_worked_on_and_fetched_after",
        ),
        differs="Failures raise typed errors, which become error results.",
    ),
    "C2.2": Row(
        "Files can live in the thread",
        (
            "tests/test_deep_agent.py::test_todos_and_files_come_back_from_the_journal",
            "tests/backends/test_backends.py::test_bytes_that_are_not_text_survive_the_journal",
            "tests/test_deep_agent.py::test_parallel_subagents_and_their_parent_share_the_threads_files",
        ),
    ),
    "C2.3": Row(
        "Files can live in a directory; edits keep every other byte, and writes are atomic",
        (
            "tests/middleware/test_filesystem.py::test_edits_keep_every_other_byte",
            "tests/backends/test_directory.py::test_links_that_lead_out_are_refused_everywhere",
            "tests/backends/test_directory.py::test_a_write_keeps_the_mode_and_leaves_nothing_beside",
            "tests/backends/test_ripgrep.py::test_the_same_lines_are_found",
        ),
        differs="There is no unconfined mode. In DeepAgents an edit turns CRLF into LF.",
    ),
    "C2.4": Row(
        "Files can live in a store",
        (
            "tests/backends/test_store_backend.py::test_an_edit_finds_text_across_crlf_and_keeps_every_other_byte",
            "tests/backends/test_store_backend.py::test_listings_load_no_contents_and_searches_only_those_that_fit",
            "tests/backends/test_store_backend.py::test_a_namespace_that_no_store_takes_is_refused_when_the_agent_is_made",
            "tests/backends/test_store_backend.py::test_each_caller_has_files_of_its_own",
        ),
        differs="In DeepAgents files with CRLF cannot be edited.",
    ),
    "C2.5": Row(
        "Several backends can be mounted under prefixes",
        (
            "tests/backends/test_composite.py::test_the_longest_prefix_decides",
            "tests/backends/test_composite.py::test_searches_from_the_root_cover_all_parts",
            "tests/backends/test_composite.py::test_caps_hold_across_parts",
            "tests/backends/test_composite.py::test_errors_name_paths_as_the_caller_does",
            "tests/backends/test_composite.py::test_where_long_results_and_messages_appear_can_be_chosen",
            "tests/middleware/test_execute.py::test_several_directories_are_there_and_other_parts_are_not",
        ),
        differs="Commands see every mounted directory at its path, not only the default backend.",
    ),
    "C2.6": Row(
        (
            "Commands can run on the host: timeouts end all their processes, and no secrets are "
            "inherited"
        ),
        (
            "tests/shell/test_session.py::test_a_timeout_keeps_what_was_written_and_ends_everything",
            "tests/shell/test_session.py::test_a_process_in_the_background_does_not_hold_the_call",
            "tests/shell/test_what_commands_say.py::test_both_streams_come_back_in_the_order_they_were_written",
            "tests/shell/test_endings.py::test_closing_ends_what_commands_left_running",
            "tests/shell/test_policies.py::test_a_shell_gets_what_programs_need_and_no_secrets",
        ),
        differs="In DeepAgents a timeout leaves child processes running and loses the output.",
    ),
    "C2.7": Row(
        "A base class for sandboxes",
        differs=(
            "Not offered: a backend has six file operations, and a sandbox is an execution policy."
        ),
    ),
    "C2.8": Row(
        "Commands run in a sandbox on this machine",
        (
            "tests/shell/test_policies.py::test_a_sandbox_shows_the_workspace_and_little_else",
            "tests/shell/test_policies.py::test_a_sandbox_that_is_not_installed_says_how_to_get_it",
            "tests/middleware/test_shell.py::test_by_default_commands_run_in_a_sandbox",
        ),
        differs="No backends for hosted sandboxes.",
    ),
    "C3.1": Row(
        "Summaries never change the messages of the state",
        (
            "tests/middleware/test_long_runs.py::test_the_request_is_in_view_at_every_call_of_twelve_rounds_with_large_results",
            "tests/middleware/test_summarization.py::test_summaries_are_private_and_append_only",
            "tests/middleware/test_summarization.py::test_a_summary_of_messages_that_are_gone_is_not_shown",
        ),
    ),
    "C3.2": Row(
        "Summaries are made near the end of the window; the system prompt and tools are counted",
        (
            "tests/middleware/test_long_runs.py::test_an_unknown_window_counts_as_two_hundred_thousand_tokens",
            "tests/middleware/test_long_runs.py::test_large_tool_schemas_bring_the_summary_forward",
            "tests/middleware/test_summarization.py::test_triggers_are_sizes_all_of_a_mapping_or_any_of_a_list",
            "tests/middleware/test_summarization.py::test_a_large_request_shows_the_goal_a_summary_and_the_recent_end",
            "tests/middleware/test_summarization.py::test_system_prompt_and_usage_of_the_last_answer_count",
        ),
    ),
    "C3.3": Row(
        "Long arguments of old writes are shortened first",
        (
            "tests/middleware/test_short_arguments.py::test_long_texts_of_writing_calls_are_cut_and_the_rest_stays",
            "tests/middleware/test_short_arguments.py::test_what_a_failed_call_did_not_write_stays_in_view",
            "tests/middleware/test_summarization_options.py::test_long_arguments_of_old_writes_are_cut_before_anything_is_summarised",
            "tests/middleware/test_summarization_options.py::test_the_mark_stays_where_it_is_until_much_can_be_freed_again",
            "tests/middleware/test_summarization_options.py::test_arguments_can_be_left_alone",
        ),
    ),
    "C3.4": Row(
        "The model can read and search what was summarised",
        (
            "tests/middleware/test_summarization_options.py::test_the_summary_names_the_history_and_the_agent_can_read_it",
            "tests/middleware/test_long_runs.py::test_a_summary_that_names_the_history_is_enough_to_find_a_word_of_the_past",
            "tests/middleware/test_long_runs.py::test_the_history_is_the_threads_own_whatever_the_call_says",
            "tests/middleware/test_long_runs.py::test_a_subagents_history_is_its_own_and_not_its_callers",
            "tests/middleware/test_filesystem_guards.py::test_the_transcript_can_be_read_and_searched_and_not_changed",
        ),
        differs="Nothing is copied: the history is the thread's own state, shown as a file.",
    ),
    "C3.5": Row(
        "Media are left out of summaries",
        (
            "tests/middleware/test_long_runs.py::test_images_are_named_and_not_sent_to_the_summariser",
        ),
        differs="They stay in the thread; the summariser reads that there was one.",
    ),
    "C3.6": Row(
        "A request that the provider refuses as too large is shortened and sent once more",
        (
            "tests/middleware/test_summarization.py::test_a_refused_request_is_summarised_harder_and_sent_once_more",
            "tests/middleware/test_summarization.py::test_an_overflow_that_nothing_can_help_and_other_errors_are_raised",
            "tests/middleware/test_long_runs.py::test_when_all_results_of_the_last_answer_are_too_long_each_of_them_is_clipped",
            "tests/models/test_anthropic_errors.py::test_refusals_have_a_kind",
        ),
    ),
    "C3.7": Row(
        "Reasoning that was signed for a longer prompt is left out after a summary",
        (
            "tests/middleware/test_summarization.py::test_old_signed_thinking_is_dropped_but_the_working_turn_keeps_its_own",
        ),
    ),
    "C3.8": Row(
        "A tool lets the model ask for a summary",
        (
            "tests/middleware/test_summarization_options.py::test_a_model_may_ask_for_a_summary_before_it_must_be",
            "tests/middleware/test_summarization_options.py::test_a_request_that_failed_is_not_carried_out",
            "tests/middleware/test_summarization_options.py::test_the_tool_says_when_there_is_nothing_to_gain_and_works_in_an_agent",
        ),
        differs="It works from 5,000 tokens on, not from half of the trigger.",
    ),
    "C3.9": Row(
        "Long threads stay fast to open and to list",
        (
            "tests/loop/test_time_travel.py::test_pages_of_history_are_newest_first_and_together_are_all_of_it",
            "tests/middleware/test_expected.py::test_the_history_of_a_long_thread_is_listed_without_reading_a_state",
            "tests/checkpoint/test_folded_states.py::test_opening_reads_a_multiple_of_the_state_and_not_its_history",
        ),
        differs="Figures: `python -m benchmarks journal`.",
    ),
}
