"""Skills, memory, planning, prompts, profiles (C8 to C12)."""

from tests.behaviour_table.row import Row

ROWS: dict[str, Row] = {
    "C8.1": Row(
        "Skills come from several sources; the later source wins",
        (
            "tests/skills/test_skill_registry.py::test_a_later_source_wins_and_its_removal_uncovers_the_earlier",
            "tests/skills/test_skill_registry.py::test_odd_sources_are_empty_or_explained",
            "tests/middleware/test_skills.py::test_names_and_descriptions_are_listed_in_the_prompt",
        ),
    ),
    "C8.2": Row(
        "A SKILL.md has frontmatter fields as in the Agent Skills specification",
        (
            "tests/skills/test_skill_registry.py::test_a_skill_is_read_with_all_its_fields_and_files",
            "tests/skills/test_skill_registry.py::test_a_broken_rule_is_an_error_that_names_file_and_rule",
            "tests/skills/test_frontmatter.py::test_lists_of_names_may_be_written_in_the_usual_ways",
            "tests/skills/test_frontmatter.py::test_a_refusal_names_file_line_and_what_is_expected",
            "tests/skills/test_frontmatter.py::test_a_file_over_the_cap_is_refused",
        ),
        differs="A compatibility text that is too long is an error, not cut.",
    ),
    "C8.3": Row(
        "Names of skills follow the specification",
        (
            "tests/skills/test_skill_registry.py::test_names_within_the_rule_load",
            "tests/skills/test_skill_registry.py::test_a_broken_rule_is_an_error_that_names_file_and_rule",
        ),
        differs="A skill that breaks the rule does not load; the error names its file.",
    ),
    "C8.4": Row(
        "Descriptions have at most 1,024 characters",
        (
            "tests/skills/test_skill_registry.py::test_description_at_the_limit_loads",
            "tests/skills/test_skill_registry.py::test_a_broken_rule_is_an_error_that_names_file_and_rule",
        ),
        differs="Longer ones are an error, not cut.",
    ),
    "C8.5": Row(
        "The prompt lists names and descriptions; the model reads bodies on demand",
        (
            "tests/middleware/test_skills.py::test_the_tool_returns_body_folder_and_other_files",
            "tests/middleware/test_skills.py::test_long_files_come_in_pages_that_add_up",
            "tests/middleware/test_skills_tools.py::test_a_long_listing_is_cut_and_says_where_the_rest_is",
            "tests/middleware/test_skills.py::test_names_and_descriptions_are_listed_in_the_prompt",
        ),
        differs="With the tool `skill`, so skills need no file tools.",
    ),
    "C8.6": Row(
        "`allowed-tools` is shown to the model, and can be enforced",
        (
            "tests/loop/test_reused_call_ids.py::test_a_skill_that_was_not_loaded_is_not_in_use_because_of_a_later_call",
            "tests/middleware/test_skills_tools.py::test_by_default_allowed_tools_are_only_shown",
            "tests/middleware/test_skills_tools.py::test_while_a_skill_is_in_use_only_the_tools_it_names_run",
            "tests/middleware/test_skills_tools.py::test_what_a_skill_does_not_name_can_be_put_before_a_person",
            "tests/middleware/test_skills_tools.py::test_a_pinned_skill_bounds_the_tools_of_every_turn",
        ),
        differs="In DeepAgents it is only shown.",
    ),
    "C8.7": Row(
        "A skill can bring tools that appear once it is read",
        (
            "tests/middleware/test_skills_tools.py::test_a_tool_comes_with_its_skill_and_stays",
            "tests/middleware/test_skills_tools.py::test_a_skill_does_not_bring_tools_that_were_not_handed_over",
        ),
    ),
    "C8.8": Row(
        "Pinned skills are in the prompt from the start",
        (
            "tests/middleware/test_skills_tools.py::test_a_pinned_skill_is_in_the_prompt_from_the_beginning_and_stays_as_it_was",
            "tests/middleware/test_skills_tools.py::test_a_caller_pins_and_unpins_skills",
            "tests/middleware/test_skills_tools.py::test_a_pinned_skill_brings_its_tools",
        ),
    ),
    "C8.9": Row(
        "A broken skill is reported in bounded, escaped text and does not affect other skills",
        (
            "tests/middleware/test_skills_in_numbers.py::test_one_broken_skill_takes_no_other_with_it",
            "tests/middleware/test_skills_in_numbers.py::test_problems_are_cut_and_no_text_of_a_file_begins_a_line_of_its_own",
            "tests/middleware/test_skills_in_numbers.py::test_a_problem_that_is_only_not_shown_any_more_is_not_called_solved",
            "tests/middleware/test_skills.py::test_the_tool_lists_skills_and_problems_without_a_name",
        ),
    ),
    "C8.10": Row(
        "A saved skill reaches threads that are running",
        (
            "tests/test_own_edits.py::test_an_agent_uses_the_skill_it_has_just_mended",
            "tests/middleware/test_skills.py::test_a_real_agent_loads_a_skill_and_hears_of_a_change_at_its_next_call",
            "tests/middleware/test_skills.py::test_the_listing_stays_as_it_was_and_changes_are_announced_once",
            "tests/middleware/test_skills_in_numbers.py::test_a_notice_of_very_many_new_skills_is_cut_and_says_where_the_rest_is",
            "tests/skills/test_hot_reload.py::test_a_saved_file_reaches_the_listener_within_150_ms",
            "tests/skills/test_skill_registry.py::test_settled_files_are_not_read_again_but_an_edit_that_keeps_the_size_is",
        ),
        differs="DeepAgents loads skills once per thread.",
    ),
    "C8.11": Row(
        "Skills can have scripts",
        (
            "tests/middleware/test_skills.py::test_the_tool_returns_body_folder_and_other_files",
            "tests/skills/test_bundled_skills_at_work.py::test_a_question_about_a_table_is_answered_with_the_shell",
        ),
        differs="The model sees their folder and files; running them needs a shell.",
    ),
    "C9.1": Row(
        "Memory files are part of the prompt",
        (
            "tests/middleware/test_memory.py::test_files_are_in_the_prompt_with_their_paths",
            "tests/skills/test_memory_files.py::test_files_come_in_order_without_comments_and_missing_ones_are_skipped",
            "tests/middleware/test_memory.py::test_the_section_can_be_worded_otherwise_or_left_out",
        ),
    ),
    "C9.2": Row(
        "Missing files and comments are skipped; sizes are capped",
        (
            "tests/skills/test_memory_files.py::test_files_come_in_order_without_comments_and_missing_ones_are_skipped",
            "tests/skills/test_memory_files.py::test_a_file_that_cannot_be_used_is_an_error_beside_its_last_good_text",
            "tests/skills/test_memory_files.py::test_all_files_together_stay_under_the_cap_and_say_so",
            "tests/skills/test_memory_files.py::test_comments_do_not_count",
            "tests/middleware/test_memory.py::test_a_file_that_breaks_is_told_and_never_stops_the_run",
        ),
        differs="The model gets a note about a file that cannot be read; the run continues.",
    ),
    "C9.3": Row(
        "The agent sees edits of memory files, its own included, at its next model call",
        (
            "tests/test_own_edits.py::test_an_agent_sees_its_own_edit_of_memory_and_keeps_it_over_a_restart",
            "tests/middleware/test_memory.py::test_a_real_agent_sees_its_own_edit_at_its_next_call",
            "tests/middleware/test_memory.py::test_a_change_is_told_once_and_the_prompt_stays",
            "tests/middleware/test_memory.py::test_a_change_between_two_runs_is_told_and_the_prompt_stays",
            "tests/middleware/test_memory.py::test_when_a_summary_took_the_notice_the_prompt_says_what_holds_now",
        ),
        differs="In DeepAgents edits are not seen in the same thread.",
    ),
    "C9.4": Row(
        "Changes of memory keep the cached beginning of the prompt valid",
        (
            "tests/middleware/test_prompt_cache_hits.py::test_another_thread_finds_tools_and_stable_prompt_though_memory_differs",
            "tests/middleware/test_prompt_caching.py::test_what_changes_goes_last_and_both_ends_of_the_prompt_are_marked",
        ),
    ),
    "C9.5": Row(
        "Subagents do not get memory",
        ("tests/test_deep_agent.py::test_memory_is_for_the_main_agent_and_skills_for_all",),
    ),
    "C10.1": Row(
        "The todo list",
        (
            "tests/test_deep_agent.py::test_the_model_sees_its_tools_and_the_sections_of_its_prompt",
            "tests/middleware/test_todo_list.py::test_a_subagent_sees_the_main_list_once_and_keeps_one_of_its_own",
        ),
        differs="Included by default; in DeepAgents it is opt-in since 0.7.",
    ),
    "C11": Row(
        "The prompt is made of named sections in a fixed order; those that change come last",
        (
            "tests/profiles/test_profiled_agents.py::test_the_prompt_is_base_profile_and_the_authors_own_words",
            "tests/test_prompt_snapshots.py::test_a_model_is_told_what_the_snapshot_says",
            "tests/middleware/test_prompt_caching.py::test_a_sections_version_changes_with_its_text_and_nothing_else",
            "tests/middleware/test_prompt_caching.py::test_what_changes_goes_last_and_both_ends_of_the_prompt_are_marked",
        ),
    ),
    "C12.1": Row(
        "A profile sets the options a model is made with",
        (
            "tests/profiles/test_profiled_agents.py::test_model_settings_reach_the_provider",
            "tests/models/test_anthropic_requests.py::test_only_what_was_asked_for_is_sent",
        ),
        differs="There are no separate provider profiles.",
    ),
    "C12.2": Row(
        (
            "A profile adapts prompts, tool descriptions, tools, middleware and the "
            "general-purpose subagent to a model"
        ),
        (
            "tests/profiles/test_profiled_agents.py::test_the_prompt_is_base_profile_and_the_authors_own_words",
            "tests/profiles/test_profiled_agents.py::test_tools_get_other_descriptions_wherever_they_come_from",
            "tests/profiles/test_profiled_agents.py::test_excluded_tools_are_neither_offered_nor_run",
            "tests/profiles/test_profiled_agents.py::test_middleware_is_left_out_replaced_in_its_place_and_added_after_the_callers",
            "tests/profiles/test_profile_files.py::test_the_specific_comes_over_the_general",
            "tests/profiles/test_profile_files.py::test_exclusions_add_up_and_single_facts_of_the_subagent_are_replaced",
            "tests/profiles/test_profiled_agents.py::test_the_general_purpose_subagent_can_be_described_anew",
        ),
    ),
    "C12.3": Row(
        "Profiles can be files",
        (
            "tests/profiles/test_profile_files.py::test_a_file_can_say_all_of_it",
            "tests/profiles/test_profile_files.py::test_what_is_wrong_is_named_with_file_and_line",
        ),
        differs="TOML, not YAML or JSON.",
    ),
    "C12.4": Row(
        "Profiles are found by the model's name",
        (
            "tests/profiles/test_profiled_agents.py::test_a_directory_of_ones_own_is_looked_up_by_the_models_name",
            "tests/profiles/test_profile_files.py::test_later_directories_win_and_a_file_of_the_same_name_replaces",
            "tests/server/test_profiles.py::test_directories_come_from_flag_environment_or_file",
        ),
        differs="In directories, or passed as objects. No entry points.",
    ),
    "C12.5": Row(
        "Profiles are included",
        (
            "tests/profiles/test_profile_files.py::test_every_known_claude_model_has_a_lean_profile",
            "tests/profiles/test_profile_files.py::test_a_family_has_a_word_of_its_own",
        ),
        differs="For Claude models only.",
    ),
}
