"""Repaired transcripts, rubrics, permissions (C4, C5)."""

from tests.behaviour_table.row import Row

ROWS: dict[str, Row] = {
    "C4.1": Row(
        (
            "Calls without a result are repaired before the model is asked; a valid transcript is "
            "not rewritten"
        ),
        (
            "tests/test_valid_conversations.py::test_no_request_of_a_thread_is_refused",
            "tests/models/test_repeated_call_ids.py::test_each_call_is_sent_with_an_id_of_its_own_and_its_own_result",
            "tests/middleware/test_patch_tool_calls.py::test_a_valid_transcript_is_not_written",
            "tests/middleware/test_patch_tool_calls.py::test_a_dangling_call_is_answered_before_the_next_user_message",
            "tests/middleware/test_patch_tool_calls.py::test_a_call_with_unreadable_arguments_is_told_so",
            "tests/middleware/test_patch_tool_calls.py::test_every_call_is_followed_by_exactly_one_result",
        ),
    ),
    "C4.2": Row(
        "Content that the model does not support becomes a notice",
        (
            "tests/middleware/test_documents.py::test_anthropic_gets_documents_and_notices_of_what_it_does_not_take",
            "tests/middleware/test_unsupported_content.py::test_an_image_of_a_type_the_model_does_not_take_becomes_a_notice",
            "tests/middleware/test_unsupported_content.py::test_a_model_without_eyes_is_described_by_the_beginning_of_its_name",
            "tests/middleware/test_unsupported_content.py::test_a_thread_may_change_its_model_and_its_messages",
        ),
    ),
    "C4.3": Row(
        "Excluded tools are neither offered nor run",
        (
            "tests/middleware/test_tool_exclusion.py::test_excluded_tools_are_neither_offered_nor_run",
            "tests/middleware/test_tool_exclusion.py::test_an_edit_by_a_person_does_not_reach_an_excluded_tool",
            "tests/profiles/test_profiled_agents.py::test_excluded_tools_are_neither_offered_nor_run",
        ),
    ),
    "C4.4": Row(
        "RubricMiddleware has answers graded and sends them back, a bounded number of times",
        (
            "tests/middleware/test_rubric.py::test_a_result_that_does_not_goes_back_to_the_model_with_what_is_missing",
            "tests/middleware/test_rubric.py::test_the_number_of_gradings_is_bounded_and_the_last_verdict_says_so",
            "tests/middleware/test_rubric.py::test_a_verdict_that_contradicts_itself_is_refused",
            "tests/middleware/test_rubric.py::test_the_transcript_is_fenced_with_marks_that_nobody_can_guess",
            "tests/middleware/test_rubric.py::test_without_a_rubric_nothing_is_graded_and_a_rubric_stays_until_it_is_replaced",
            "tests/middleware/test_rubric.py::test_the_grader_sees_the_request_and_the_end_of_a_long_transcript",
            "tests/middleware/test_rubric_tools.py::test_the_grader_reads_a_file_and_nothing_of_it_is_in_the_thread",
        ),
        differs="The grader can have read-only tools, but no middleware of its own.",
    ),
    "C5.1": Row(
        "Rules match paths; the first match wins",
        (
            "tests/policy/test_file_permissions.py::test_the_first_rule_that_matches_decides",
            "tests/policy/test_rules.py::test_the_first_rule_that_fits_decides",
            "tests/policy/test_rules.py::test_globs_over_paths",
            "tests/policy/test_rules.py::test_a_glob_that_could_never_match_is_refused",
            "tests/policy/test_rules.py::test_no_spelling_of_a_path_slips_past",
        ),
        differs="Rules name tools, not the operations read and write. The default can be deny.",
    ),
    "C5.2": Row(
        "Rules apply to a path before and after links are resolved, and to listings",
        (
            "tests/policy/test_policed_calls.py::test_a_link_does_not_lead_into_what_is_denied",
            "tests/policy/test_policed_calls.py::test_a_denied_link_is_denied_wherever_it_leads",
            "tests/policy/test_policed_calls.py::test_listings_leave_out_what_could_not_be_read",
            "tests/policy/test_policed_calls.py::test_a_link_above_what_is_denied_hides_it_as_well",
            "tests/policy/test_file_permissions.py::test_a_directory_goes_only_with_all_that_it_holds",
        ),
    ),
    "C5.3": Row(
        "Rules can ask a person",
        (
            "tests/policy/test_file_permissions.py::test_to_ask_is_not_to_deny",
            "tests/policy/test_policed_calls.py::test_a_link_to_what_needs_approval_says_what_to_name",
            "tests/test_deep_agent.py::test_the_policy_and_approvals_hold_for_subagents_too",
        ),
    ),
    "C5.4": Row(
        "Path rules and a shell can be combined",
        (
            "tests/policy/test_policed_calls.py::test_path_rules_and_a_shell_go_together",
            "tests/policy/test_policed_calls.py::test_a_shell_is_judged_command_by_command",
            "tests/policy/test_command_lines.py::test_no_attack_passes_an_allow_by_command",
            "tests/middleware/test_execute.py::test_what_file_tools_may_not_read_or_write_commands_may_not_either",
            "tests/middleware/test_execute.py::test_commands_are_judged_like_those_of_the_shell",
        ),
        differs="DeepAgents refuses the combination.",
    ),
    "C5.5": Row(
        "A subagent can have rules of its own",
        (
            "tests/policy/test_policed_calls.py::test_a_subagents_own_policy_can_only_narrow",
            "tests/policy/test_policed_calls.py::test_an_agent_that_a_tool_hands_work_to_is_held_to_the_callers_policy",
        ),
        differs="They can only narrow those of its caller, never replace them.",
    ),
    "C5.6": Row(
        "One policy covers every tool, command, subagent and principal",
        (
            "tests/policy/test_policed_calls.py::test_a_shell_is_judged_command_by_command",
            "tests/policy/test_policed_calls.py::test_the_policy_can_deny_a_subagent_as_such",
            "tests/policy/test_policed_calls.py::test_rules_about_the_principal_see_who_the_run_is_for",
            "tests/policy/test_policed_calls.py::test_rules_about_the_agent_tell_subagents_from_the_main_one",
            "tests/mcp_servers/test_tools.py::test_a_policy_judges_them_by_server_and_hints",
        ),
        differs="DeepAgents has rules for file tools only.",
    ),
}
