"""Agents and deep agents: their parts (A1, A2)."""

from tests.behaviour_table.row import Row

ROWS: dict[str, Row] = {
    "A1.1": Row(
        "`model` is a model object or a name such as `anthropic:claude-sonnet-5-5`",
        (
            "tests/loop/test_factory.py::test_a_model_is_an_object_or_a_name",
            "tests/loop/test_wrap_model_call.py::test_several_models_may_be_asked_and_one_answer_goes_on",
        ),
        differs="A fallback is a middleware around the model call, not a kind of model.",
    ),
    "A1.2": Row(
        "`tools` takes tools, plain functions, and mappings for tools that the provider runs",
        (
            "tests/loop/test_factory.py::test_a_tool_may_be_a_plain_function",
            "tests/loop/test_factory.py::test_a_tool_of_the_provider_reaches_the_model_and_never_runs_here",
            "tests/loop/test_factory.py::test_without_tools_the_model_is_asked_once",
            "tests/tools/test_models_and_schemas.py::test_provider_tools_are_mappings_with_the_providers_type",
        ),
    ),
    "A1.3": Row(
        "`system_prompt` is text, or sections with cache marks; it is never stored in the state",
        (
            "tests/loop/test_factory.py::test_a_prompt_is_text_or_sections_and_stays_out_of_the_transcript",
            "tests/loop/test_requests.py::test_the_system_prompt_is_not_in_the_transcript_and_may_be_empty",
        ),
    ),
    "A1.4": Row(
        "Middleware runs in the order given; two with one name are refused",
        (
            "tests/loop/test_factory.py::test_what_makes_no_sense_is_refused_when_the_agent_is_built",
            "tests/loop/test_routing.py::test_hooks_run_as_an_onion_and_agent_hooks_once_per_run",
        ),
    ),
    "A1.5": Row(
        "`response_format` is a strategy, a type or a JSON schema",
        (
            "tests/loop/test_structured_answers.py::test_every_kind_of_schema_gives_a_typed_value_and_comes_back_from_the_journal",
            "tests/loop/test_structured_answers.py::test_a_wrapper_that_swaps_the_model_changes_how_it_is_asked",
        ),
    ),
    "A1.6": Row(
        "`state_schema` is merged last, so its declaration of a key wins over that of middleware",
        (
            "tests/loop/test_state.py::test_schemas_are_merged_and_the_callers_wins_over_middleware",
            "tests/loop/test_state.py::test_keys_of_the_loop_may_be_repeated_and_messages_joined_in_another_way",
            "tests/loop/test_state.py::test_a_key_of_the_loop_declared_in_another_way_is_refused_by_name",
        ),
        differs=(
            "It need not extend AgentState. A key of the loop declared with another type, other "
            "marks or no reducer is refused when the agent is built."
        ),
    ),
    "A1.7": Row(
        (
            "`context_schema`: the context of a run is converted to this type, or refused before "
            "anything runs"
        ),
        (
            "tests/loop/test_factory.py::test_a_context_is_of_the_declared_type_wherever_it_is_seen",
            "tests/loop/test_factory.py::test_a_context_that_does_not_fit_is_refused_before_anything_runs",
            "tests/loop/test_factory.py::test_a_context_may_hold_live_objects",
        ),
    ),
    "A1.8": Row(
        (
            "`checkpointer` stores the threads of an agent; a subagent uses the one of the run "
            "that called it"
        ),
        (
            "tests/loop/test_factory.py::test_agents_over_one_journal_share_its_threads",
            "tests/loop/test_rows_gaps.py::test_a_subagent_is_kept_in_the_journal_of_the_run_that_called_it",
        ),
        differs="Every agent has one, in memory by default. True and False are not offered.",
    ),
    "A1.9": Row(
        "`store` is available to hooks and tools",
        (
            "tests/loop/test_factory.py::test_a_store_is_handed_to_hooks_wraps_and_tools",
            "tests/tools/test_injection.py::test_each_mark_gets_its_part_of_the_runtime",
        ),
    ),
    "A1.10": Row(
        "`interrupt_before` and `interrupt_after` stop a run at nodes; unknown names are refused",
        (
            "tests/loop/test_factory.py::test_a_run_stops_at_its_breakpoints_and_goes_on_in_another_agent",
            "tests/loop/test_breakpoints.py::test_a_run_stops_once_in_every_round_and_a_resume_goes_past",
            "tests/loop/test_breakpoints.py::test_a_run_stops_before_and_after_a_hook",
            "tests/loop/test_breakpoints.py::test_a_node_that_is_not_there_is_refused_when_the_agent_is_built",
        ),
        differs="They belong to the agent; a run cannot bring its own.",
    ),
    "A1.11": Row(
        "`debug=True` prints each step to stderr",
        (
            "tests/loop/test_debugging.py::test_debug_prints_each_step_and_leaves_the_stream_as_it_is",
            "tests/loop/test_debugging.py::test_debug_can_be_printed_and_read_at_once",
        ),
    ),
    "A1.12": Row(
        "`name` is on answers, events, runs and model requests",
        ("tests/loop/test_factory.py::test_the_name_is_on_answers_events_runs_and_requests",),
    ),
    "A1.13": Row(
        "`cache` keeps model answers, and results of tools marked `cacheable`",
        (
            "tests/loop/test_model_cache.py::test_the_same_run_asks_the_model_once_across_agents_and_restarts",
            "tests/loop/test_model_cache.py::test_a_whole_run_with_tools_comes_from_the_cache",
            "tests/loop/test_model_cache.py::test_whatever_could_change_the_answer_is_a_miss",
            "tests/loop/test_model_cache.py::test_a_cacheable_tool_runs_once_for_the_same_arguments",
            "tests/loop/test_tool_policies.py::test_a_result_answers_the_same_call_of_another_thread_and_is_no_tool_call",
            "tests/loop/test_tool_policies.py::test_errors_updates_and_unmarked_tools_are_not_cached",
        ),
        differs="In LangChain the option has no effect.",
    ),
    "A1.14": Row(
        "Stream transformers",
        differs=(
            "Not offered: events are typed data with a path, which a consumer filters or maps "
            "itself."
        ),
    ),
    "A1.15": Row(
        "An agent runs, streams and batches; its threads can be listed, read and changed",
        (
            "tests/loop/test_sync_api.py::test_invoke_runs_to_the_end_and_threads_go_on",
            "tests/loop/test_sync_api.py::test_a_stream_is_the_events_and_last_the_result",
            "tests/loop/test_sync_api.py::test_a_batch_returns_results_in_the_order_of_its_inputs",
            "tests/loop/test_factory.py::test_agents_over_one_journal_share_its_threads",
            "tests/loop/test_durability.py::test_update_state_writes_on_top",
            "tests/loop/test_time_travel.py::test_pages_of_history_are_newest_first_and_together_are_all_of_it",
        ),
        differs=(
            "`Agent` drives a fixed loop and is not a graph: no get_subgraphs, copy or "
            "stream_events. A cache is cleared through the cache object."
        ),
    ),
    "A1.16": Row(
        "Retries, timeouts, caching, parallel calls, tokens, cost and time can be set or limited",
        (
            "tests/loop/test_tool_policies.py::test_a_timeout_is_for_each_attempt_and_worth_another",
            "tests/loop/test_tool_policies.py::test_only_what_may_pass_is_tried_again_and_each_attempt_counts",
            "tests/loop/test_tool_policies.py::test_a_result_is_used_for_as_long_as_its_policy_says",
            "tests/loop/test_run_limits.py::test_no_more_calls_run_at_once_than_allowed_and_each_of_them_runs",
            "tests/loop/test_run_limits.py::test_near_a_limit_there_is_one_turn_to_wrap_up_and_past_it_a_typed_reason",
            "tests/loop/test_cancellation.py::test_a_deadline_stops_tools_keeps_what_finished_and_more_time_goes_on",
        ),
        differs="LangChain's factory takes only a cache, which has no effect.",
    ),
    "A2.1": Row(
        "The model of a deep agent is an object or a name; a profile adds settings and text for it",
        (
            "tests/test_deep_agent.py::test_the_model_sees_its_tools_and_the_sections_of_its_prompt",
            "tests/profiles/test_profiled_agents.py::test_the_profile_is_found_by_the_models_name",
            "tests/profiles/test_profiled_agents.py::test_model_settings_reach_the_provider",
        ),
        differs="The model is required; there is no silent default.",
    ),
    "A2.2": Row(
        "The caller's tools follow the built-in ones; subagents get them too",
        (
            "tests/test_deep_agent.py::test_the_model_sees_its_tools_and_the_sections_of_its_prompt",
            "tests/loop/test_rows_gaps.py::test_subagents_get_the_callers_tools_and_cannot_delegate",
        ),
    ),
    "A2.3": Row(
        (
            "The system prompt of a deep agent has the caller's text, the profile's text and "
            "sections of middleware"
        ),
        (
            "tests/test_deep_agent.py::test_the_model_sees_its_tools_and_the_sections_of_its_prompt",
            "tests/profiles/test_profiled_agents.py::test_the_prompt_is_base_profile_and_the_authors_own_words",
        ),
        differs=(
            "A short base prompt comes first, then the profile's text, the caller's text, and the "
            "sections of middleware."
        ),
    ),
    "A2.4": Row(
        "`middleware` is added to the built-in middleware of a deep agent",
        (
            "tests/loop/test_rows_gaps.py::test_the_stack_of_a_deep_agent_and_of_its_subagents",
            "tests/loop/test_rows_gaps.py::test_a_second_middleware_with_the_name_of_a_built_in_one_is_refused",
            "tests/middleware/test_model_patience.py::test_a_retry_of_ones_own_takes_the_place_of_the_built_in_one",
            "tests/middleware/test_stack.py::test_options_are_laid_over_those_of_the_stack_and_its_place_stays",
            "tests/middleware/test_stack.py::test_none_leaves_a_middleware_out",
        ),
        differs=(
            "A built-in one's name is refused, except ModelRetryMiddleware. `middleware_options` "
            "and profiles change or remove built-in ones."
        ),
    ),
    "A2.5": Row(
        "`subagents` takes declared, prebuilt and remote subagents",
        (
            "tests/test_deep_agent.py::test_a_subagent_gets_its_own_prompt_and_only_its_tools",
            "tests/test_deep_agent.py::test_an_unknown_subagent_is_answered_with_those_there_are",
            "tests/skills/test_subagent_registry.py::test_a_file_describes_a_subagent",
            "tests/subagents/test_prebuilt.py::test_an_agent_runs_with_its_own_model_and_tools_and_the_callers_policy_holds_too",
            "tests/e2e/test_remote_subagents.py::test_a_remote_subagent_answers_like_any_other",
        ),
        differs="Background subagents have an option of their own, `background`.",
    ),
    "A2.6": Row(
        "`skills` come from several sources; the later source wins",
        (
            "tests/test_deep_agent.py::test_memory_is_for_the_main_agent_and_skills_for_all",
            "tests/skills/test_skill_registry.py::test_a_later_source_wins_and_its_removal_uncovers_the_earlier",
        ),
        differs="Passed as a SkillRegistry.",
    ),
    "A2.7": Row(
        "`memory` adds AGENTS.md files to the prompt",
        (
            "tests/test_deep_agent.py::test_memory_is_for_the_main_agent_and_skills_for_all",
            "tests/skills/test_memory_files.py::test_files_come_in_order_without_comments_and_missing_ones_are_skipped",
            "tests/test_own_edits.py::test_an_agent_sees_its_own_edit_of_memory_and_keeps_it_over_a_restart",
        ),
        differs="Passed as MemoryFiles; edits are noticed during a run.",
    ),
    "A2.8": Row(
        "Rules restrict the files an agent may read or write",
        (
            "tests/test_deep_agent.py::test_the_policy_and_approvals_hold_for_subagents_too",
            "tests/middleware/test_filesystem.py::test_the_policy_sees_canonical_paths",
            "tests/policy/test_policed_calls.py::test_listings_leave_out_what_could_not_be_read",
            "tests/policy/test_policed_calls.py::test_path_rules_and_a_shell_go_together",
        ),
        differs=(
            "Instead of a list of file permissions there is one Policy. Its rules match tool, path "
            "and command, for every tool call, commands included."
        ),
    ),
    "A2.9": Row(
        "`backend` decides where files live; by default they live in the thread",
        (
            "tests/test_deep_agent.py::test_todos_and_files_come_back_from_the_journal",
            "tests/test_deep_agent.py::test_parallel_subagents_and_their_parent_share_the_threads_files",
            "tests/loop/test_rows_gaps.py::test_a_backend_is_an_object_and_nothing_that_makes_one",
        ),
        differs=(
            "Takes a backend object only; a class or a function that makes one is refused, as in "
            "DeepAgents since 0.7."
        ),
    ),
    "A2.10": Row(
        "`interrupt_on` asks a person before calls of the named tools, in subagents too",
        (
            "tests/test_deep_agent.py::test_the_policy_and_approvals_hold_for_subagents_too",
            "tests/middleware/test_human_in_the_loop.py::test_true_asks_with_every_decision",
            "tests/subagents/test_declared.py::test_a_subagent_cannot_ask_less_than_its_caller",
            "tests/subagents/test_declared.py::test_a_subagent_can_ask_more_than_its_caller_and_the_stricter_choice_holds",
        ),
        differs="A subagent's own setting can only ask more, never less than its caller's.",
    ),
    "A2.11": Row(
        "The other options of a deep agent do what they do in `create_agent`",
        (
            "tests/loop/test_rows_gaps.py::test_options_of_a_deep_agent_do_what_they_do_for_any_agent",
            "tests/test_deep_agent.py::test_todos_and_files_come_back_from_the_journal",
        ),
    ),
    "A2.12": Row(
        "`interrupt_before` and `interrupt_after` of a deep agent",
        (
            "tests/loop/test_rows_gaps.py::test_options_of_a_deep_agent_do_what_they_do_for_any_agent",
            "tests/loop/test_rows_gaps.py::test_a_deep_agent_stops_after_a_node",
        ),
        differs="DeepAgents leaves both out; here both work.",
    ),
    "A2.13": Row(
        "The built-in middleware of a deep agent, in order",
        ("tests/loop/test_rows_gaps.py::test_the_stack_of_a_deep_agent_and_of_its_subagents",),
        differs=(
            "The todo list, repeat guard, budget warning and model retry are included. "
            "UnsupportedContentMiddleware is not; a profile can add it."
        ),
    ),
    "A2.14": Row(
        "A subagent has the same middleware, without subagents of its own",
        (
            "tests/loop/test_rows_gaps.py::test_the_stack_of_a_deep_agent_and_of_its_subagents",
            "tests/loop/test_rows_gaps.py::test_subagents_get_the_callers_tools_and_cannot_delegate",
        ),
    ),
    "A2.15": Row(
        "The tools that a model sees by default",
        (
            "tests/test_deep_agent.py::test_the_model_sees_its_tools_and_the_sections_of_its_prompt",
            "tests/middleware/test_execute.py::test_a_deep_agent_and_its_subagents_have_commands_unless_their_tools_are_named",
            "tests/middleware/test_filesystem_guards.py::test_delete_file_is_there_only_when_it_is_named",
        ),
        differs=(
            "write_todos and skill are included. delete_file has to be named. execute and job need "
            "an `execution_policy`."
        ),
    ),
    "A2.16": Row(
        "Profiles take tools and middleware away",
        (
            "tests/loop/test_factory.py::test_only_the_named_tools_are_offered_and_run",
            "tests/test_deep_agent.py::test_a_subagent_gets_its_own_prompt_and_only_its_tools",
            "tests/profiles/test_profiled_agents.py::test_excluded_tools_are_neither_offered_nor_run",
            "tests/profiles/test_profiled_agents.py::test_middleware_is_left_out_replaced_in_its_place_and_added_after_the_callers",
            "tests/profiles/test_profile_files.py::test_what_is_wrong_is_named_with_file_and_line",
        ),
        differs="`tool_names` also limits an agent to the named tools.",
    ),
    "A2.17": Row(
        (
            "Building and importing are cheap: subagents are built on first use, and the model's "
            "SDK is imported on first use"
        ),
        (
            "tests/loop/test_rows_gaps.py::test_a_subagent_is_built_when_it_is_first_asked_for",
            "tests/test_library.py::test_importing_the_library_or_the_server_does_not_import_the_models_sdk",
        ),
        differs="Times are measured by `python -m benchmarks loop`, not by tests.",
    ),
}
