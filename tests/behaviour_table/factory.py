"""Agents and deep agents: what they are made of (A1, A2)."""

from tests.behaviour_table.row import Row

ROWS: dict[str, Row] = {
    "A1.1": Row(
        "the model is an object or a name",
        (
            "tests/loop/test_factory.py::test_a_model_is_an_object_or_a_name",
            "tests/loop/test_wrap_model_call.py::test_several_models_may_be_asked_and_one_answer_goes_on",
        ),
        differs="A fallback is a wrapper around the model call, not a kind of model.",
    ),
    "A1.2": Row(
        "tools are tools, plain functions, or mappings that the provider runs",
        (
            "tests/loop/test_factory.py::test_a_tool_may_be_a_plain_function",
            "tests/loop/test_factory.py::test_a_tool_of_the_provider_reaches_the_model_and_never_runs_here",
            "tests/loop/test_factory.py::test_without_tools_the_model_is_asked_once",
            "tests/tools/test_models_and_schemas.py::test_provider_tools_are_mappings_with_the_providers_type",
        ),
    ),
    "A1.3": Row(
        "the system prompt is text or sections with cache marks, and stays out of the state",
        (
            "tests/loop/test_factory.py::test_a_prompt_is_text_or_sections_and_stays_out_of_the_transcript",
            "tests/loop/test_requests.py::test_the_system_prompt_is_not_in_the_transcript_and_may_be_empty",
        ),
    ),
    "A1.4": Row(
        "middleware is ordered, and names are unique",
        (
            "tests/loop/test_factory.py::test_what_makes_no_sense_is_refused_when_the_agent_is_built",
            "tests/loop/test_routing.py::test_hooks_run_as_an_onion_and_agent_hooks_once_per_run",
        ),
    ),
    "A1.5": Row(
        "response_format is a strategy, a type or a JSON schema",
        (
            "tests/loop/test_structured_answers.py::test_every_kind_of_schema_gives_a_typed_value_and_comes_back_from_the_journal",
            "tests/loop/test_structured_answers.py::test_a_wrapper_that_swaps_the_model_changes_how_it_is_asked",
        ),
    ),
    "A1.6": Row(
        "state_schema is merged last and wins on a key that middleware has too",
        (
            "tests/loop/test_state.py::test_schemas_are_merged_and_the_callers_wins_over_middleware",
            "tests/loop/test_state.py::test_keys_of_the_loop_may_be_repeated_and_messages_joined_in_another_way",
            "tests/loop/test_state.py::test_a_key_of_the_loop_declared_in_another_way_is_refused_by_name",
        ),
        differs=(
            "It need not extend AgentState. A key of the loop with another type, other marks or no "
            "reducer is refused at build."
        ),
    ),
    "A1.7": Row(
        "context_schema: what a run is given is made into the type, or refused",
        (
            "tests/loop/test_factory.py::test_a_context_is_of_the_declared_type_wherever_it_is_seen",
            "tests/loop/test_factory.py::test_a_context_that_does_not_fit_is_refused_before_anything_runs",
            "tests/loop/test_factory.py::test_a_context_may_hold_live_objects",
        ),
    ),
    "A1.8": Row(
        "the checkpointer: the agent's own, or that of the run it is called in",
        (
            "tests/loop/test_factory.py::test_agents_over_one_journal_share_its_threads",
            "tests/loop/test_rows_gaps.py::test_a_subagent_is_kept_in_the_journal_of_the_run_that_called_it",
        ),
        differs=(
            "There is always a journal (in memory by default); no True or False: a subagent is "
            "kept in its parent's."
        ),
    ),
    "A1.9": Row(
        "the store reaches hooks and tools",
        (
            "tests/loop/test_factory.py::test_a_store_is_handed_to_hooks_wraps_and_tools",
            "tests/tools/test_injection.py::test_each_mark_gets_its_part_of_the_runtime",
        ),
    ),
    "A1.10": Row(
        "static breakpoints by node name; unknown names are refused",
        (
            "tests/loop/test_factory.py::test_a_run_stops_at_its_breakpoints_and_goes_on_in_another_agent",
            "tests/loop/test_breakpoints.py::test_a_run_stops_once_in_every_round_and_a_resume_goes_past",
            "tests/loop/test_breakpoints.py::test_a_run_stops_before_and_after_a_hook",
            "tests/loop/test_breakpoints.py::test_a_node_that_is_not_there_is_refused_when_the_agent_is_built",
        ),
        differs="They belong to the agent; a run cannot bring its own.",
    ),
    "A1.11": Row(
        "debug prints each step",
        (
            "tests/loop/test_debugging.py::test_debug_prints_each_step_and_leaves_the_stream_as_it_is",
            "tests/loop/test_debugging.py::test_debug_can_be_printed_and_read_at_once",
        ),
    ),
    "A1.12": Row(
        "the name is on answers, events, runs and requests",
        ("tests/loop/test_factory.py::test_the_name_is_on_answers_events_runs_and_requests",),
    ),
    "A1.13": Row(
        "the cache keeps model answers and the results of cacheable tools",
        (
            "tests/loop/test_model_cache.py::test_the_same_run_asks_the_model_once_across_agents_and_restarts",
            "tests/loop/test_model_cache.py::test_a_whole_run_with_tools_comes_from_the_cache",
            "tests/loop/test_model_cache.py::test_whatever_could_change_the_answer_is_a_miss",
            "tests/loop/test_model_cache.py::test_a_cacheable_tool_runs_once_for_the_same_arguments",
            "tests/loop/test_tool_policies.py::test_a_result_answers_the_same_call_of_another_thread_and_is_no_tool_call",
        ),
    ),
    "A1.14": Row(
        "stream transformers",
        differs=(
            "Not offered: events are typed data with a path; a consumer filters or maps them "
            "itself."
        ),
    ),
    "A1.15": Row(
        "an agent runs, streams, batches, and shows and changes its threads",
        (
            "tests/loop/test_sync_api.py::test_invoke_runs_to_the_end_and_threads_go_on",
            "tests/loop/test_sync_api.py::test_a_stream_is_the_events_and_last_the_result",
            "tests/loop/test_sync_api.py::test_a_batch_returns_results_in_the_order_of_its_inputs",
            "tests/loop/test_durability.py::test_update_state_writes_on_top",
            "tests/loop/test_time_travel.py::test_pages_of_history_are_newest_first_and_together_are_all_of_it",
            "tests/loop/test_drawing.py::test_a_small_agent",
        ),
        differs=(
            "An Agent over a fixed loop, not a graph: no get_subgraphs, copy or stream_events; "
            "caches are cleared at the cache."
        ),
    ),
    "A1.16": Row(
        "retry, timeout, cache, parallel calls, tokens, cost and deadline are options here",
        (
            "tests/loop/test_tool_policies.py::test_a_timeout_is_for_each_attempt_and_worth_another",
            "tests/loop/test_tool_policies.py::test_only_what_may_pass_is_tried_again_and_each_attempt_counts",
            "tests/loop/test_tool_policies.py::test_a_result_is_used_for_as_long_as_its_policy_says",
            "tests/loop/test_run_limits.py::test_no_more_calls_run_at_once_than_allowed_and_each_of_them_runs",
            "tests/loop/test_run_limits.py::test_near_a_limit_there_is_one_turn_to_wrap_up_and_past_it_a_typed_reason",
            "tests/loop/test_cancellation.py::test_a_deadline_stops_tools_keeps_what_finished_and_more_time_goes_on",
        ),
    ),
    "A2.1": Row(
        "the model of a deep agent",
        (
            "tests/test_deep_agent.py::test_the_model_sees_its_tools_and_the_sections_of_its_prompt",
            "tests/profiles/test_profiled_agents.py::test_the_profile_is_found_by_the_models_name",
            "tests/profiles/test_profiled_agents.py::test_model_settings_reach_the_provider",
        ),
        differs="The model must be given; no default is chosen silently.",
    ),
    "A2.2": Row(
        "the caller's tools come after the built-in ones; subagents get them too",
        (
            "tests/test_deep_agent.py::test_the_model_sees_its_tools_and_the_sections_of_its_prompt",
            "tests/loop/test_rows_gaps.py::test_subagents_get_the_callers_tools_and_cannot_delegate",
        ),
    ),
    "A2.3": Row(
        "the system prompt of a deep agent",
        (
            "tests/test_deep_agent.py::test_the_model_sees_its_tools_and_the_sections_of_its_prompt",
            "tests/profiles/test_profiled_agents.py::test_the_prompt_is_base_profile_and_the_authors_own_words",
        ),
        differs=(
            "A short base prompt stands first, then the profile's and the caller's text, then the "
            "sections of middleware."
        ),
    ),
    "A2.4": Row(
        "middleware beside the built-in stack",
        (
            "tests/loop/test_rows_gaps.py::test_the_stack_of_a_deep_agent_and_of_its_subagents",
            "tests/loop/test_rows_gaps.py::test_a_second_middleware_with_the_name_of_a_built_in_one_is_refused",
        ),
        differs=(
            "One with the name of a built-in is refused, not swapped in; who wants another stack "
            "uses create_agent."
        ),
    ),
    "A2.5": Row(
        "subagents",
        (
            "tests/test_deep_agent.py::test_a_subagent_gets_its_own_prompt_and_only_its_tools",
            "tests/test_deep_agent.py::test_an_unknown_subagent_is_answered_with_those_there_are",
            "tests/skills/test_subagent_registry.py::test_a_file_describes_a_subagent",
            "tests/subagents/test_prebuilt.py::test_an_agent_runs_with_its_own_model_and_tools_and_the_callers_policy_holds_too",
            "tests/e2e/test_remote_subagents.py::test_a_remote_subagent_answers_like_any_other",
        ),
        differs="Those in the background are an option of their own, `background`.",
    ),
    "A2.6": Row(
        "skills from several sources, later ones first",
        (
            "tests/test_deep_agent.py::test_memory_is_for_the_main_agent_and_skills_for_all",
            "tests/skills/test_skill_registry.py::test_a_later_source_wins_and_its_removal_uncovers_the_earlier",
        ),
        differs="Given as a SkillRegistry; sources are directories without labels.",
    ),
    "A2.7": Row(
        "memory from AGENTS.md files",
        (
            "tests/test_deep_agent.py::test_memory_is_for_the_main_agent_and_skills_for_all",
            "tests/skills/test_memory_files.py::test_files_come_in_order_without_comments_and_missing_ones_are_skipped",
            "tests/test_own_edits.py::test_an_agent_sees_its_own_edit_of_memory_and_keeps_it_over_a_restart",
        ),
        differs="Given as MemoryFiles, so that edits are noticed while runs go on.",
    ),
    "A2.8": Row(
        "permissions on files",
        (
            "tests/test_deep_agent.py::test_the_policy_and_approvals_hold_for_subagents_too",
            "tests/middleware/test_filesystem.py::test_the_policy_sees_canonical_paths",
            "tests/policy/test_policed_calls.py::test_listings_leave_out_what_could_not_be_read",
            "tests/policy/test_policed_calls.py::test_path_rules_and_a_shell_go_together",
        ),
        differs=(
            "No list of file permissions: one Policy with rules by tool, path and command, for "
            "every tool call, shells included."
        ),
    ),
    "A2.9": Row(
        "the backend keeps files in the thread by default",
        (
            "tests/test_deep_agent.py::test_todos_and_files_come_back_from_the_journal",
            "tests/test_deep_agent.py::test_parallel_subagents_and_their_parent_share_the_threads_files",
            "tests/loop/test_rows_gaps.py::test_a_backend_is_an_object_and_nothing_that_makes_one",
        ),
        differs=(
            "An object only: a class or a function that makes one is refused, as at the peer since "
            "0.7."
        ),
    ),
    "A2.10": Row(
        "interrupt_on asks before calls by tool name, in subagents too",
        (
            "tests/test_deep_agent.py::test_the_policy_and_approvals_hold_for_subagents_too",
            "tests/middleware/test_human_in_the_loop.py::test_true_asks_with_every_decision",
            "tests/middleware/test_human_in_the_loop.py::test_a_wrong_config_is_refused_when_the_agent_is_built",
            "tests/subagents/test_declared.py::test_a_subagent_can_ask_more_than_its_caller_and_the_stricter_choice_holds",
        ),
        differs="A subagent's own can only ask more: the choices of the main agent bind all.",
    ),
    "A2.11": Row(
        "the other options do what they do for any agent",
        (
            "tests/loop/test_rows_gaps.py::test_options_of_a_deep_agent_do_what_they_do_for_any_agent",
            "tests/test_deep_agent.py::test_todos_and_files_come_back_from_the_journal",
        ),
    ),
    "A2.12": Row(
        "breakpoints are offered by a deep agent too",
        (
            "tests/loop/test_rows_gaps.py::test_options_of_a_deep_agent_do_what_they_do_for_any_agent",
            "tests/loop/test_rows_gaps.py::test_a_deep_agent_stops_after_a_node",
        ),
        differs=(
            "Deep agents have interrupt_before and interrupt_after; stream transformers exist "
            "nowhere here."
        ),
    ),
    "A2.13": Row(
        "the stack of the main agent",
        ("tests/loop/test_rows_gaps.py::test_the_stack_of_a_deep_agent_and_of_its_subagents",),
        differs=(
            "Todo list and repeat guard are in it; a content filter is not. Exclusions and further "
            "middleware come from the profile."
        ),
    ),
    "A2.14": Row(
        "the stack of a subagent, without subagents of its own",
        (
            "tests/loop/test_rows_gaps.py::test_the_stack_of_a_deep_agent_and_of_its_subagents",
            "tests/loop/test_rows_gaps.py::test_subagents_get_the_callers_tools_and_cannot_delegate",
        ),
    ),
    "A2.15": Row(
        "the tools a model sees by default",
        (
            "tests/test_deep_agent.py::test_the_model_sees_its_tools_and_the_sections_of_its_prompt",
            "tests/middleware/test_execute.py::test_a_deep_agent_and_its_subagents_have_commands_unless_their_tools_are_named",
            "tests/middleware/test_filesystem_guards.py::test_delete_file_is_there_only_when_it_is_named",
        ),
        differs=(
            "write_todos and skill are there, delete_file only in a stack of one's own; execute "
            "comes with an `execution_policy`."
        ),
    ),
    "A2.16": Row(
        "tools taken away",
        (
            "tests/loop/test_factory.py::test_only_the_named_tools_are_offered_and_run",
            "tests/test_deep_agent.py::test_a_subagent_gets_its_own_prompt_and_only_its_tools",
            "tests/profiles/test_profiled_agents.py::test_excluded_tools_are_neither_offered_nor_run",
            "tests/profiles/test_profiled_agents.py::test_middleware_is_left_out_replaced_in_its_place_and_added_after_the_callers",
            "tests/profiles/test_profile_files.py::test_what_is_wrong_is_named_with_file_and_line",
        ),
        differs="Beside profiles, `tool_names` keeps only the named tools of one agent.",
    ),
    "A2.17": Row(
        "what building and importing cost",
        (
            "tests/loop/test_rows_gaps.py::test_a_subagent_is_built_when_it_is_first_asked_for",
            "tests/test_library.py::test_importing_the_library_or_the_server_does_not_import_the_models_sdk",
        ),
        differs="Times are measured by `python -m benchmarks loop`, not by tests.",
    ),
}
