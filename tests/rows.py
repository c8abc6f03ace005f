"""What the project does about each behaviour of the libraries it is compared with.

The ids number the behaviours of LangChain, LangGraph and DeepAgents that the project compares
itself with: A1 factory, A2 deep agents, A3 nodes and edges, A4 jumps, A5 hooks, A6 requests, A7
state, A8 structured output, D1 the step loop, D3 interrupts and durability, D4 time travel, D8
streams. Each row names the tests that show our behaviour, or says where and why it differs, or
what brings it later. `test_rows.py` checks that the table is complete and the tests exist.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ROWS", "Row"]


@dataclass(frozen=True, slots=True)
class Row:
    """One behaviour.

    Attributes:
        what: The behaviour, in a line.
        tests: Ids of the tests that show what we do.
        differs: Where we do otherwise, or have something else, and why.
    """

    what: str
    tests: tuple[str, ...] = ()
    differs: str | None = None


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
        ("tests/test_deep_agent.py::test_the_model_sees_its_tools_and_the_sections_of_its_prompt",),
        differs=(
            "The model must be given; no default is chosen silently. There are no profiles to look "
            "up."
        ),
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
        ("tests/test_deep_agent.py::test_the_model_sees_its_tools_and_the_sections_of_its_prompt",),
        differs=(
            "A short base prompt stands first, then the caller's text, then the sections of "
            "middleware."
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
        ),
        differs=(
            "A registry of declared subagents; compiled ones and background ones come with the "
            "subagent capabilities."
        ),
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
        ),
        differs="An instance only, never a factory; as at the peer since 0.7.",
    ),
    "A2.10": Row(
        "interrupt_on asks before calls by tool name, in subagents too",
        (
            "tests/test_deep_agent.py::test_the_policy_and_approvals_hold_for_subagents_too",
            "tests/middleware/test_human_in_the_loop.py::test_true_asks_with_every_decision",
            "tests/middleware/test_human_in_the_loop.py::test_a_wrong_config_is_refused_when_the_agent_is_built",
        ),
        differs=(
            "A subagent cannot set its own; the policy and interrupt_on of the main agent bind all."
        ),
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
            "Todo list and repeat guard are in it; async subagents, profiles, tool exclusion and a "
            "content filter are not."
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
        ("tests/test_deep_agent.py::test_the_model_sees_its_tools_and_the_sections_of_its_prompt",),
        differs=(
            "write_todos and skill are there; delete and execute come with the sandboxed backends."
        ),
    ),
    "A2.16": Row(
        "tools taken away",
        (
            "tests/loop/test_factory.py::test_only_the_named_tools_are_offered_and_run",
            "tests/test_deep_agent.py::test_a_subagent_gets_its_own_prompt_and_only_its_tools",
        ),
        differs=(
            "No profiles: `tool_names` keeps only the named tools (refused if called, unknown "
            "names refused at build)."
        ),
    ),
    "A2.17": Row(
        "what building and importing cost",
        (
            "tests/loop/test_rows_gaps.py::test_a_subagent_is_built_when_it_is_first_asked_for",
            "tests/test_library.py::test_importing_the_library_or_the_server_does_not_import_the_models_sdk",
        ),
        differs="Times are measured by `python -m benchmarks loop`, not by tests.",
    ),
    "A3.1": Row(
        "all hooks of a phase share one step",
        (
            "tests/loop/test_hooks.py::test_hooks_of_one_phase_see_what_the_earlier_ones_wrote_and_share_a_step",
            "tests/loop/test_routing.py::test_a_hook_that_changes_nothing_commits_nothing",
            "tests/loop/test_rows_gaps.py::test_steps_are_numbered_along_the_thread_and_hooks_of_a_phase_are_at_most_one",
        ),
    ),
    "A3.2": Row(
        "where a run enters",
        (
            "tests/loop/test_drawing.py::test_a_small_agent",
            "tests/loop/test_drawing.py::test_a_model_alone_asks_once",
            "tests/loop/test_drawing.py::test_a_run_walks_along_the_edges_of_the_picture",
        ),
    ),
    "A3.3": Row(
        "after the tools the loop begins at before_model, never at before_agent",
        (
            "tests/loop/test_drawing.py::test_after_the_tools_the_loop_begins_again_without_the_hooks_of_the_run",
            "tests/loop/test_routing.py::test_hooks_run_as_an_onion_and_agent_hooks_once_per_run",
        ),
    ),
    "A3.4": Row(
        "after_model runs last to first",
        (
            "tests/loop/test_drawing.py::test_the_first_of_the_list_is_outermost",
            "tests/loop/test_hooks.py::test_hooks_of_any_stack_run_as_an_onion",
        ),
    ),
    "A3.5": Row(
        "the exit begins at the last after_agent",
        (
            "tests/loop/test_drawing.py::test_the_first_of_the_list_is_outermost",
            "tests/loop/test_drawing.py::test_a_declared_jump_leads_where_the_loop_would_go",
        ),
    ),
    "A3.6": Row(
        "before_agent runs in list order, once per run",
        (
            "tests/loop/test_hooks.py::test_agent_hooks_run_again_for_the_next_run_on_the_thread",
            "tests/loop/test_hooks.py::test_a_run_that_waited_does_not_begin_again",
            "tests/loop/test_drawing.py::test_the_first_of_the_list_is_outermost",
        ),
    ),
    "A3.7": Row(
        "after_agent runs last to first",
        (
            "tests/loop/test_routing.py::test_hooks_run_as_an_onion_and_agent_hooks_once_per_run",
            "tests/loop/test_hooks.py::test_hooks_of_any_stack_run_as_an_onion",
        ),
    ),
    "A3.8": Row(
        "what follows a model answer",
        (
            "tests/loop/test_hooks.py::test_model_means_through_before_model_again",
            "tests/loop/test_hooks.py::test_calls_that_a_hook_answered_go_back_to_the_model_without_running",
            "tests/loop/test_rows_gaps.py::test_a_run_without_an_answer_left_ends",
            "tests/loop/test_factory.py::test_without_tools_the_model_is_asked_once",
            "tests/loop/test_structured_answers.py::test_of_an_answer_only_the_calls_that_no_hook_answered_run",
            "tests/loop/test_structured_answers.py::test_after_work_with_tools_the_answer_ends_the_run",
        ),
    ),
    "A3.9": Row(
        "what follows the tools",
        (
            "tests/loop/test_tool_returns.py::test_only_direct_tools_together_end_the_run",
            "tests/loop/test_tool_returns.py::test_a_call_turned_into_a_direct_tool_counts_as_that_tool",
            "tests/loop/test_structured_answers.py::test_an_answer_beside_a_call_lets_the_call_run_and_ends_the_run",
            "tests/loop/test_structured_answers.py::test_a_refused_answer_beside_a_call_goes_back_to_the_model_with_its_result",
        ),
    ),
    "A3.10": Row(
        "structured output without tools repeats, but is bounded",
        (
            "tests/loop/test_structured_answers.py::test_repair_is_bounded_and_the_failure_holds_the_last_attempt",
            "tests/loop/test_drawing.py::test_structured_output_is_an_end_of_its_own",
        ),
    ),
    "A3.11": Row(
        "without tools and format the model is asked once",
        (
            "tests/loop/test_factory.py::test_without_tools_the_model_is_asked_once",
            "tests/loop/test_drawing.py::test_a_model_alone_asks_once",
        ),
    ),
    "A3.12": Row(
        "when there is a tools node",
        (
            "tests/loop/test_drawing.py::test_tools_are_drawn_when_something_could_lead_there",
            "tests/loop/test_routing.py::test_a_wrong_jump_is_an_error_that_names_the_hook",
        ),
        differs=(
            "Tools can always be reached; a jump there without a call is an error that names the "
            "hook."
        ),
    ),
    "A3.13": Row(
        "pending calls are found by id, and steps cost what they add",
        (
            "tests/test_messages.py::test_pending_calls_are_those_of_the_last_answer_without_a_result",
            "tests/checkpoint/test_committers.py::test_a_thousand_steps_take_room_in_proportion_to_their_data",
        ),
    ),
    "A3.14": Row(
        "calls that cannot be parsed are answered at once and the model tries again",
        (
            "tests/loop/test_routing.py::test_arguments_that_are_not_json_are_answered_at_once",
            "tests/models/test_anthropic_answers.py::test_arguments_that_are_no_json_object_come_back_as_an_invalid_call",
        ),
    ),
    "A3.15": Row(
        "an unknown tool is answered with the names there are",
        (
            "tests/loop/test_routing.py::test_results_are_in_call_order_and_a_failing_tool_is_a_result",
            "tests/loop/test_factory.py::test_only_the_named_tools_are_offered_and_run",
        ),
    ),
    "A3.16": Row(
        "a tool that raises gives an error result; only a strict one ends the run",
        (
            "tests/loop/test_routing.py::test_results_are_in_call_order_and_a_failing_tool_is_a_result",
            "tests/loop/test_tool_policies.py::test_a_strict_tool_ends_the_run_and_what_finished_beside_it_is_kept",
        ),
    ),
    "A3.17": Row(
        "return_direct with bad arguments does not end the run",
        ("tests/loop/test_routing.py::test_return_direct_ends_the_run_unless_it_failed",),
    ),
    "A3.18": Row(
        "direct and other tools together go back to the model",
        ("tests/loop/test_tool_returns.py::test_only_direct_tools_together_end_the_run",),
    ),
    "A3.19": Row(
        "a structured answer beside a call: the call runs, the run ends",
        (
            "tests/loop/test_structured_answers.py::test_an_answer_beside_a_call_lets_the_call_run_and_ends_the_run",
            "tests/loop/test_structured_answers.py::test_an_answer_beside_a_call_that_waits_is_kept_until_the_run_ends",
        ),
    ),
    "A3.20": Row(
        "a bound that ends endless runs",
        (
            "tests/loop/test_durability.py::test_a_run_that_reaches_a_limit_ends_with_the_reason_and_paired_calls",
            "tests/test_limits.py::test_a_met_limit_says_what_was_used_and_what_to_do",
        ),
        differs=(
            "Calls are bounded, not steps: 200 model and 1,000 tool calls by default; hooks cost "
            "nothing; a typed reason."
        ),
    ),
    "A4.1": Row(
        "jumps go to tools, model and end; anything else is an error",
        (
            "tests/loop/test_routing.py::test_a_wrong_jump_is_an_error_that_names_the_hook",
            "tests/loop/test_hooks.py::test_end_skips_the_rest_of_the_phase_but_not_after_agent",
            "tests/loop/test_hooks.py::test_model_means_through_before_model_again",
            "tests/loop/test_decorators.py::test_only_hooks_that_can_jump_take_can_jump_to",
        ),
    ),
    "A4.2": Row(
        "a jump holds for one step and is no state",
        (
            "tests/loop/test_hooks.py::test_a_jump_holds_for_one_step_and_leaves_no_trace_in_the_state",
        ),
    ),
    "A4.3": Row(
        "jumps are declared on the hook",
        (
            "tests/loop/test_decorators.py::test_jumps_belong_to_one_use_of_a_function",
            "tests/loop/test_decorators.py::test_hooks_are_found_however_they_are_set",
            "tests/loop/test_drawing.py::test_a_declared_jump_leads_where_the_loop_would_go",
        ),
    ),
    "A4.4": Row(
        "an undeclared jump is an error that names the hook",
        ("tests/loop/test_routing.py::test_a_wrong_jump_is_an_error_that_names_the_hook",),
    ),
    "A4.5": Row(
        "before_model to model is an error that names the hook",
        (
            "tests/loop/test_routing.py::test_a_wrong_jump_is_an_error_that_names_the_hook",
            "tests/loop/test_drawing.py::test_a_jump_the_loop_refuses_is_not_drawn",
        ),
    ),
    "A4.6": Row(
        "after_agent to end ends the run",
        (
            "tests/loop/test_routing.py::test_after_agent_jump_to_end_ends",
            "tests/loop/test_drawing.py::test_a_run_walks_along_the_edges_of_the_picture",
        ),
        differs="It ends at once, skipping the after_agent hooks that are left.",
    ),
    "A4.7": Row(
        "after_agent to model sends the work back",
        ("tests/loop/test_routing.py::test_after_agent_may_send_the_run_back_to_the_model",),
    ),
    "A4.8": Row(
        "before_agent to tools runs calls that were written",
        ("tests/loop/test_hooks.py::test_calls_that_a_hook_wrote_may_be_jumped_to",),
    ),
    "A4.9": Row(
        "after_model to end skips the outer after_model hooks",
        ("tests/loop/test_hooks.py::test_end_skips_the_rest_of_the_phase_but_not_after_agent",),
    ),
    "A4.10": Row(
        "jumping to tools runs no call that was rejected",
        (
            "tests/loop/test_gate.py::test_jump_to_tools_does_not_run_a_rejected_call",
            "tests/loop/test_gate_attacks.py::test_a_rejected_call_has_its_result_so_jumping_back_to_it_is_an_error",
            "tests/loop/test_gate_attacks.py::test_a_call_that_a_hook_injects_and_jumps_to_is_judged",
        ),
    ),
    "A4.11": Row(
        "a wrapper of the model call cannot jump",
        ("tests/loop/test_wrap_model_call.py::test_nonsense_fails_the_run_and_names_the_wrapper",),
    ),
    "A5.1": Row(
        "node hooks: what they are given, what they return, undeclared keys",
        (
            "tests/loop/test_hooks.py::test_nonsense_fails_the_run_by_the_hooks_name_and_the_thread_goes_on",
            "tests/loop/test_hooks.py::test_hooks_of_one_phase_see_what_the_earlier_ones_wrote_and_share_a_step",
            "tests/loop/test_hooks.py::test_the_runtime_tells_where_the_run_is_and_takes_events",
            "tests/loop/test_routing.py::test_an_undeclared_state_key_is_an_error_naming_the_hook",
            "tests/loop/test_streams.py::test_custom_events_come_from_hooks_wraps_and_tools",
        ),
        differs=(
            "Arguments go by place, not by name; no `config`; jump_to is the one way to jump."
        ),
    ),
    "A5.2": Row(
        "wrap hooks nest, first outermost, and call the handler any number of times",
        (
            "tests/loop/test_hooks.py::test_hooks_of_any_stack_run_as_an_onion",
            "tests/loop/test_wrap_model_call.py::test_a_wrapper_may_try_again_until_the_model_answers",
            "tests/loop/test_wrap_model_call.py::test_a_wrapper_may_answer_without_the_model_and_inner_ones_are_not_asked",
            "tests/loop/test_wrap_tool_call.py::test_three_wrappers_nest_and_each_may_change_the_result",
            "tests/loop/test_wrap_tool_call.py::test_a_wrapper_may_try_again_while_siblings_keep_their_results",
        ),
    ),
    "A5.3": Row(
        "what a model wrap returns; updates inner first, none of repeated attempts",
        (
            "tests/loop/test_wrap_model_call.py::test_updates_are_made_inner_first",
            "tests/loop/test_wrap_model_call.py::test_updates_of_an_attempt_that_was_repeated_are_dropped_with_it",
            "tests/loop/test_wrap_model_call.py::test_an_answer_of_ones_own_may_bring_updates",
            "tests/loop/test_wrap_model_call.py::test_a_wrapper_may_answer_without_the_model_and_inner_ones_are_not_asked",
        ),
        differs=(
            "ExtendedModelResponse carries an update, not a command; there is nothing else a wrap "
            "could command."
        ),
    ),
    "A5.4": Row(
        "updates of model wraps follow the answer, in the same checkpoint",
        (
            "tests/loop/test_wrap_model_call.py::test_messages_of_an_update_follow_the_answer",
            "tests/loop/test_wrap_model_call.py::test_answer_and_updates_are_one_checkpoint",
            "tests/loop/test_wrap_model_call.py::test_two_wrappers_that_write_one_plain_key_fail_the_run_and_both_are_named",
            "tests/loop/test_structured_runs.py::test_an_answer_of_an_earlier_turn_does_not_end_or_answer_the_next",
        ),
    ),
    "A5.5": Row(
        "what a tool wrap is given and returns",
        (
            "tests/loop/test_wrap_tool_call.py::test_a_wrapper_sees_call_tool_state_and_runtime",
            "tests/loop/test_wrap_tool_call.py::test_a_command_of_a_wrapper_brings_state_and_the_result",
            "tests/loop/test_wrap_tool_call.py::test_a_wrapper_that_returns_nonsense_ends_the_run_by_name",
            "tests/loop/test_requests.py::test_a_tool_call_request_is_a_copy_too_and_does_not_touch_the_transcript",
        ),
    ),
    "A5.6": Row(
        "sync and async hooks mix under one name, with and without an event loop",
        (
            "tests/loop/test_sync_wraps.py::test_sync_and_async_wraps_nest_in_any_order",
            "tests/loop/test_sync_wraps.py::test_the_same_wraps_work_without_an_event_loop",
            "tests/loop/test_hooks.py::test_hooks_of_any_stack_run_as_an_onion",
            "tests/loop/test_decorators.py::test_what_would_be_ignored_is_refused_by_name",
        ),
    ),
    "A5.7": Row(
        "hooks are found however they are set, on the instance too",
        (
            "tests/loop/test_decorators.py::test_hooks_are_found_however_they_are_set",
            "tests/loop/test_decorators.py::test_a_hook_that_is_the_bases_own_does_not_count",
        ),
    ),
    "A5.8": Row(
        "what a middleware has; misspelt hooks are refused",
        (
            "tests/loop/test_decorators.py::test_what_would_be_ignored_is_refused_by_name",
            "tests/loop/test_decorators.py::test_misspelt_names_of_a_base_and_of_an_instance_are_found",
            "tests/loop/test_decorators.py::test_helpers_are_nobodys_business",
        ),
        differs=(
            "judge, redact, evict besides. No trace_policy or transformers; before_tool, "
            "wrap_agent_call and the like are refused by name."
        ),
    ),
    "A5.9": Row(
        "every hook as a decorator",
        (
            "tests/loop/test_decorators.py::test_a_decorated_function_is_middleware_with_one_hook_and_the_functions_name",
            "tests/loop/test_decorators.py::test_options_of_a_decorator",
            "tests/loop/test_decorators.py::test_decorated_functions_run_where_their_hooks_do",
            "tests/loop/test_decorators.py::test_wrong_use_says_what_is_expected",
        ),
        differs="configure_trace_policy and omit_payload have nothing to configure here.",
    ),
    "A5.10": Row(
        "dynamic_prompt replaces the system prompt",
        (
            "tests/loop/test_decorators.py::test_a_dynamic_prompt_replaces_the_system_prompt",
            "tests/loop/test_decorators.py::test_a_dynamic_prompt_that_is_no_text_fails_the_run_by_name",
        ),
    ),
    "A5.11": Row(
        "trace policies",
        differs=(
            "No tracing service is built in, so nothing of hooks is sent anywhere; events are the "
            "trace."
        ),
    ),
    "A5.12": Row(
        "the runtime that hooks are given",
        (
            "tests/loop/test_hooks.py::test_the_runtime_tells_where_the_run_is_and_takes_events",
            "tests/loop/test_cancellation.py::test_a_drain_from_a_hook_finishes_the_step_and_the_run_can_go_on",
        ),
        differs="No heartbeat, previous or server_info; meter and interrupt besides.",
    ),
    "A5.13": Row(
        "the runtime that tools are given, by type, name or mark; hidden from the model",
        (
            "tests/tools/test_injection.py::test_injected_parameters_are_filled_in_and_hidden",
            "tests/tools/test_injection.py::test_the_model_cannot_set_them_and_errors_do_not_tell_of_them",
            "tests/tools/test_injection.py::test_each_mark_gets_its_part_of_the_runtime",
        ),
    ),
    "A5.14": Row(
        "whatever a wrapper changes is judged after the change",
        (
            "tests/loop/test_gate.py::test_a_wrapper_cannot_turn_an_allowed_call_into_a_denied_one",
            "tests/loop/test_gate.py::test_an_approval_holds_for_exactly_the_call_that_was_shown",
            "tests/loop/test_gate_attacks.py::test_what_runs_is_what_was_judged_though_the_arguments_change_while_it_waits",
            "tests/loop/test_gate_attacks.py::test_a_judge_that_changes_arguments_in_place_changes_nothing_that_runs",
        ),
    ),
    "A6.1": Row(
        "what a model request tells",
        ("tests/loop/test_requests.py::test_a_request_tells_everything_about_the_call",),
    ),
    "A6.2": Row(
        "override copies and leaves the rest as it is",
        (
            "tests/loop/test_requests.py::test_override_copies_and_everything_else_keeps_its_identity",
            "tests/loop/test_requests.py::test_requests_and_responses_cannot_be_changed_in_place",
            "tests/loop/test_requests.py::test_a_field_that_is_not_there_is_refused",
        ),
    ),
    "A6.3": Row(
        "another model per call, asked in its own way",
        (
            "tests/loop/test_requests.py::test_another_model_is_asked_only_where_it_was_put",
            "tests/loop/test_structured_answers.py::test_a_wrapper_that_swaps_the_model_changes_how_it_is_asked",
        ),
    ),
    "A6.4": Row(
        "tools chosen per call; one that nobody would run is refused",
        (
            "tests/loop/test_requests.py::test_tools_are_offered_as_chosen_per_call",
            "tests/loop/test_wrap_tool_call.py::test_a_tool_that_nobody_would_run_is_not_offered",
            "tests/loop/test_wrap_tool_call.py::test_a_tool_may_be_offered_by_one_wrapper_and_supplied_by_another",
        ),
    ),
    "A6.5": Row(
        "a call may narrow the declared schemas, never widen them",
        (
            "tests/loop/test_structured_runs.py::test_a_wrapper_narrows_what_one_call_may_answer",
            "tests/loop/test_structured_runs.py::test_a_wrapper_cannot_bring_a_schema_of_its_own",
            "tests/test_structured_output.py::test_a_schema_that_was_not_declared_is_refused",
        ),
    ),
    "A6.6": Row(
        "settings per call",
        (
            "tests/loop/test_requests.py::test_settings_choice_and_message_marks_arrive",
            "tests/models/test_anthropic_requests.py::test_settings_of_the_request_win_over_the_models",
        ),
        differs="Cache marks are fields of their own, not settings.",
    ),
    "A6.7": Row(
        "models by name, configurable by a run",
        (
            "tests/models/test_registry.py::test_a_full_name_gives_the_providers_model",
            "tests/models/test_registry.py::test_a_bare_claude_id_is_anthropics",
            "tests/models/test_configurable.py::test_a_prefix_tells_the_models_of_a_run_apart",
            "tests/models/test_configurable.py::test_any_lets_a_run_set_everything",
            "tests/loop/test_factory.py::test_a_run_chooses_the_model_and_a_wrapper_may_choose_another",
        ),
    ),
    "A6.8": Row(
        "middleware's tools come first; two of one name are refused",
        (
            "tests/loop/test_rows_gaps.py::test_tools_of_middleware_come_before_those_of_the_caller",
            "tests/loop/test_factory.py::test_what_makes_no_sense_is_refused_when_the_agent_is_built",
        ),
    ),
    "A6.9": Row(
        "what a tool may return",
        (
            "tests/loop/test_tool_returns.py::test_a_tool_has_one_result_whatever_it_returns",
            "tests/loop/test_tool_returns.py::test_what_cannot_be_kept_is_an_error_result_and_the_thread_stays_usable",
            "tests/loop/test_tool_returns.py::test_calls_that_tools_send_run_next_in_call_order_through_the_gate",
            "tests/tools/test_results.py::test_values_become_what_a_model_can_read",
            "tests/tools/test_functions.py::test_content_and_artifact_are_two_values_of_one_return",
        ),
        differs=(
            "No command to a parent graph: a subagent gives its parent a result and its shared "
            "state."
        ),
    ),
    "A7.1": Row(
        "the keys every agent has",
        (
            "tests/loop/test_structured_runs.py::test_the_value_can_be_set_by_an_author_but_not_by_input",
            "tests/loop/test_hooks.py::test_a_jump_holds_for_one_step_and_leaves_no_trace_in_the_state",
            "tests/loop/test_tool_returns.py::test_calls_that_tools_send_run_next_in_call_order_through_the_gate",
        ),
        differs=(
            "messages and a private key for sent calls; jump_to is no key; structured_response "
            "only with a format."
        ),
    ),
    "A7.2": Row(
        "marks that keep a key out of input or output",
        (
            "tests/loop/test_state.py::test_marks_say_who_sees_a_key_and_how_long_it_lives",
            "tests/loop/test_state.py::test_wrong_input_is_refused_before_anything_is_stored",
            "tests/loop/test_state.py::test_tools_see_private_keys_and_may_write_them",
        ),
    ),
    "A7.3": Row(
        "keys that live for the run and are never stored",
        (
            "tests/loop/test_state.py::test_marks_say_who_sees_a_key_and_how_long_it_lives",
            "tests/loop/test_streams.py::test_state_that_is_not_stored_need_not_be_data",
        ),
    ),
    "A7.4": Row(
        "schemas are merged, the last wins",
        (
            "tests/loop/test_state.py::test_schemas_are_merged_and_the_callers_wins_over_middleware",
            "tests/loop/test_state.py::test_a_wrong_schema_is_refused_when_the_agent_is_built",
        ),
    ),
    "A7.5": Row(
        "messages are added, replaced and removed by id",
        (
            "tests/test_messages.py::test_adding_keeps_one_message_per_id_in_order_of_first_appearance",
            "tests/test_messages.py::test_removing",
            "tests/loop/test_state.py::test_messages_are_added_replaced_and_removed_by_id_from_outside",
            "tests/loop/test_state.py::test_ids_are_made_up_kept_in_storage_and_stable_across_runs",
            "tests/loop/test_run_input.py::test_a_run_begins_with_a_text_messages_or_a_state_update",
        ),
        differs=(
            "Texts and role/content mappings are taken as input only; there is one message form, "
            "so no `format`."
        ),
    ),
    "A7.6": Row(
        "Overwrite goes past the reducer, once per step",
        (
            "tests/loop/test_state.py::test_an_overwrite_replaces_what_was_written_before_it",
            "tests/loop/test_state.py::test_of_two_overwrites_in_one_answer_the_later_call_gets_an_error",
        ),
        differs=(
            "Only writes before it in call order are dropped; a second one is an error result; no "
            "JSON form."
        ),
    ),
    "A7.7": Row(
        "two parallel writers of a plain key",
        (
            "tests/loop/test_routing.py::test_parallel_writers_of_a_plain_key_the_later_call_gets_an_error",
        ),
        differs="The later call gets an error result instead of the run ending.",
    ),
    "A7.8": Row(
        "kinds of channels",
        (
            "tests/loop/test_state.py::test_marks_say_who_sees_a_key_and_how_long_it_lives",
            "tests/loop/test_state.py::test_parallel_writes_join_in_call_order",
            "tests/loop/test_rows_gaps.py::test_a_hook_can_see_what_remains_of_the_runs_limits",
        ),
        differs=(
            "Last value, a reducer, or a mark; what remains of the run is in runtime.meter. "
            "Barriers need a graph."
        ),
    ),
    "A7.9": Row(
        "results of parallel calls are in call order",
        (
            "tests/loop/test_routing.py::test_results_are_in_call_order_and_a_failing_tool_is_a_result",
            "tests/loop/test_state.py::test_parallel_writes_join_in_call_order",
        ),
    ),
    "A8.1": Row(
        "auto asks natively where model and schema allow it",
        (
            "tests/test_structured_output.py::test_auto_decides_by_the_model_that_is_asked",
            "tests/test_structured_output.py::test_auto_takes_tools_for_a_schema_no_provider_can_enforce",
            "tests/models/test_anthropic_output.py::test_families_that_have_native_output_say_so",
        ),
    ),
    "A8.2": Row(
        "native answers that do not fit are repaired",
        (
            "tests/test_structured_output.py::test_a_native_answer_that_does_not_fit_is_repaired_and_bounded",
            "tests/loop/test_structured_answers.py::test_a_model_with_native_output_is_held_to_the_schema_instead",
            "tests/loop/test_structured_answers.py::test_a_strategy_the_model_cannot_do_fails_before_it_is_asked",
        ),
        differs="No `strict`: native output is always held to the schema.",
    ),
    "A8.3": Row(
        "one tool for each schema",
        (
            "tests/test_structured_output.py::test_a_union_is_one_tool_for_each_member",
            "tests/test_structured_output.py::test_one_of_at_the_top_of_a_json_schema_is_one_tool_for_each_member",
            "tests/loop/test_structured_answers.py::test_after_work_with_tools_the_answer_ends_the_run",
            "tests/loop/test_structured_answers.py::test_texts_of_ones_own_reach_the_model_and_the_transcript",
        ),
    ),
    "A8.4": Row(
        "what happens with an answer that does not fit",
        (
            "tests/test_structured_output.py::test_a_text_of_ones_own_replaces_ours",
            "tests/test_structured_output.py::test_only_the_named_kinds_of_error_are_repaired",
            "tests/test_structured_output.py::test_without_repair_errors_are_raised_at_once",
            "tests/loop/test_structured_answers.py::test_without_repair_the_kind_of_error_says_what_was_wrong",
        ),
        differs=(
            "A failure is the result of the run (status failed, typed error), not raised from it."
        ),
    ),
    "A8.5": Row(
        "repair is bounded, and the failure holds the last attempt",
        (
            "tests/loop/test_structured_answers.py::test_repair_is_bounded_and_the_failure_holds_the_last_attempt",
            "tests/loop/test_structured_answers.py::test_so_many_repairs_are_allowed_as_is_said",
            "tests/loop/test_structured_runs.py::test_the_count_of_repairs_survives_a_restart",
        ),
    ),
    "A8.6": Row(
        "prose is followed by one forced call, then an error",
        (
            "tests/loop/test_structured_answers.py::test_prose_is_followed_by_one_forced_call",
            "tests/loop/test_structured_answers.py::test_repair_is_bounded_and_the_failure_holds_the_last_attempt",
            "tests/test_structured_output.py::test_prose_is_answered_by_one_forced_call",
        ),
    ),
    "A8.7": Row(
        "JSON schemas are validated like types",
        (
            "tests/test_structured_output.py::test_what_does_not_fit_is_repaired_whatever_the_schema",
            "tests/test_structured_output.py::test_problems_are_named_by_place",
        ),
    ),
    "A8.8": Row(
        "an answer of an earlier turn is never taken for the new one",
        (
            "tests/loop/test_structured_runs.py::test_an_answer_of_an_earlier_turn_does_not_end_or_answer_the_next",
            "tests/loop/test_structured_runs.py::test_a_turn_that_ends_before_the_model_has_no_answer",
        ),
    ),
    "D1.1": Row(
        "what one turn of the loop does",
        (
            "tests/loop/test_debugging.py::test_debug_prints_each_step_and_leaves_the_stream_as_it_is",
            "tests/loop/test_streams.py::test_checkpoints_are_the_commits_of_the_journal",
            "tests/loop/test_breakpoints.py::test_a_star_stops_at_every_node",
        ),
        differs=(
            "Phases with a fixed order instead of prepared tasks; ends done, needs_approval, "
            "paused, failed or cancelled."
        ),
    ),
    "D1.2": Row(
        "what makes a node run",
        ("tests/loop/test_drawing.py::test_a_run_walks_along_the_edges_of_the_picture",),
        differs=(
            "Not by channel versions: each checkpoint names the phase that follows, from one "
            "routing table."
        ),
    ),
    "D1.3": Row(
        "versions",
        (
            "tests/checkpoint/test_conformance.py::test_the_same_step_can_be_finished_only_once",
            "tests/checkpoint/test_conformance.py::test_a_run_cannot_go_on_from_anything_but_the_head",
        ),
        differs=(
            "Channels have none: a checkpoint knows its parent, and only the head can be gone on "
            "from."
        ),
    ),
    "D1.4": Row(
        "parallel writes join in call order; what failed writes nothing",
        (
            "tests/loop/test_state.py::test_parallel_writes_join_in_call_order",
            "tests/checkpoint/test_conformance.py::test_parallel_tasks_are_folded_in_call_order",
            "tests/loop/test_tool_returns.py::test_what_cannot_be_kept_is_an_error_result_and_the_thread_stays_usable",
        ),
    ),
    "D1.5": Row(
        "ids that are the same after a resume",
        (
            "tests/loop/test_loop_laws.py::test_questions_keep_their_ids_and_order_in_every_process",
            "tests/loop/test_time_travel.py::test_an_unfinished_run_can_be_taken_over_without_input_and_keeps_its_finished_calls",
        ),
    ),
    "D1.6": Row(
        "a finished call is stored at once and not made again",
        (
            "tests/loop/test_durability.py::test_after_a_crash_only_unfinished_calls_run_again",
            "tests/loop/test_crash_points.py::test_a_death_at_any_commit_changes_nothing_but_what_was_unfinished",
            "tests/checkpoint/test_conformance.py::test_finished_tasks_of_an_unfinished_step_are_pending",
            "tests/checkpoint/test_conformance.py::test_a_task_that_wrote_nothing_still_counts_as_finished",
        ),
    ),
    "D1.7": Row(
        "reserved keys",
        (
            "tests/loop/test_state.py::test_a_key_of_the_loop_declared_in_another_way_is_refused_by_name",
            "tests/loop/test_structured_runs.py::test_a_schema_that_makes_something_else_of_the_answer_is_refused",
            "tests/loop/test_tool_returns.py::test_calls_that_tools_send_run_next_in_call_order_through_the_gate",
        ),
        differs=(
            "No dunder keys in the state; interrupts, answers and runs are rows of the journal. "
            "sent_calls is private."
        ),
    ),
    "D1.8": Row(
        "steps are numbered; what a run may do is bounded",
        (
            "tests/loop/test_rows_gaps.py::test_steps_are_numbered_along_the_thread_and_hooks_of_a_phase_are_at_most_one",
            "tests/loop/test_run_limits.py::test_a_resumed_run_goes_on_counting_in_another_process",
        ),
        differs=(
            "Numbered from 0 (the first input) along the thread; limits count calls and go on "
            "counting over resumes."
        ),
    ),
    "D1.9": Row(
        "Send and Command",
        (
            "tests/loop/test_hooks.py::test_calls_that_a_hook_sends_run_in_order_and_are_paired",
            "tests/loop/test_tool_returns.py::test_calls_that_tools_send_run_next_in_call_order_through_the_gate",
            "tests/loop/test_tool_returns.py::test_what_was_sent_survives_a_crash_between_the_tools_and_their_checkpoint",
            "tests/loop/test_gate_attacks.py::test_a_call_that_a_tool_sends_is_judged_also_in_a_chain",
        ),
        differs=(
            "Send names a tool, through the gate; its timeout is the tool's. No goto to nodes, "
            "parent graphs or deferred nodes."
        ),
    ),
    "D1.10": Row(
        "retry, cache and timeout policies",
        (
            "tests/loop/test_tool_policies.py::test_only_what_may_pass_is_tried_again_and_each_attempt_counts",
            "tests/loop/test_tool_policies.py::test_a_call_that_takes_too_long_is_answered_and_its_siblings_are_not_touched",
            "tests/loop/test_tool_policies.py::test_a_result_is_used_for_as_long_as_its_policy_says",
            "tests/tools/test_marks.py::test_only_what_may_pass_by_itself_is_tried_again",
            "tests/tools/test_marks.py::test_waits_grow_by_the_factor_up_to_the_cap",
            "tests/loop/test_cancellation.py::test_the_late_result_of_a_thread_is_thrown_away",
        ),
        differs="They belong to tools, sync ones too; no idle timeout, no error-handler nodes.",
    ),
    "D1.11": Row(
        "a drain finishes the step, saves, and can be gone on from",
        (
            "tests/loop/test_cancellation.py::test_a_drain_from_outside_waits_for_the_step_and_a_new_message_may_come_instead",
            "tests/loop/test_cancellation.py::test_a_drain_from_a_tool_lets_its_siblings_finish_and_stores_the_step",
            "tests/loop/test_cancellation.py::test_a_drain_from_a_hook_finishes_the_step_and_the_run_can_go_on",
            "tests/loop/test_turns.py::test_a_drained_run_finishes_its_step_and_goes_on_when_resumed",
        ),
        differs="The run comes back as paused instead of an exception.",
    ),
    "D1.12": Row(
        "cancelling stops model and tools at once and keeps what finished",
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
        "how durable a step is",
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
        ),
        differs=(
            "Sync by default, in one transaction (driven calls that stay inside follow within "
            "20 ms). Input, questions, `once` marks and what files held never wait."
        ),
    ),
    "D3.2": Row(
        "interrupt: asked again from the start, answered by place, checked by schema",
        (
            "tests/loop/test_interrupts.py::test_writes_before_a_question_are_dropped_and_made_once",
            "tests/loop/test_interrupts.py::test_a_tool_that_asks_twice_runs_from_its_start_but_its_siblings_do_not",
            "tests/loop/test_interrupts.py::test_every_kind_of_hook_can_ask_and_gets_its_answer",
            "tests/loop/test_durability.py::test_wrong_answers_are_refused_and_not_stored",
        ),
    ),
    "D3.3": Row(
        "answers by id, in any portions and order",
        (
            "tests/loop/test_interrupts.py::test_answers_in_any_order_and_grouping_lead_to_the_same_transcript",
            "tests/loop/test_interrupts.py::test_of_several_answers_none_is_stored_when_one_is_wrong",
            "tests/loop/test_interrupts.py::test_resuming_without_answers_asks_the_same_again_and_runs_nothing",
            "tests/loop/test_loop_laws.py::test_questions_may_be_answered_in_any_order_and_any_portions",
        ),
        differs=(
            "Answers always name their question, also when it is the only one; unknown ids are "
            "always refused."
        ),
    ),
    "D3.4": Row(
        "what an interrupt needs",
        (
            "tests/loop/test_rows_gaps.py::test_a_question_needs_neither_a_journal_nor_a_thread_id_but_data",
        ),
        differs=(
            "Neither a checkpointer nor a thread id has to be given: there is always a journal, "
            "and ids are made up."
        ),
    ),
    "D3.5": Row(
        "several questions of one call or hook",
        (
            "tests/loop/test_interrupts.py::test_a_tool_that_asks_twice_runs_from_its_start_but_its_siblings_do_not",
            "tests/loop/test_interrupts.py::test_writes_before_a_question_are_dropped_and_made_once",
            "tests/mcp_servers/test_questions.py::test_the_questions_of_one_round_are_asked_together",
        ),
        differs=(
            "Code that asks one after the other runs again from its start for each, its siblings "
            "never; documented as such."
        ),
    ),
    "D3.6": Row(
        "static breakpoints are passed by a resume and not remembered",
        (
            "tests/loop/test_breakpoints.py::test_a_run_stops_once_in_every_round_and_a_resume_goes_past",
            "tests/loop/test_breakpoints.py::test_a_star_stops_at_every_node",
            "tests/loop/test_breakpoints.py::test_a_stop_shows_the_state_and_is_passed_in_another_process",
            "tests/loop/test_breakpoints.py::test_state_changed_at_a_stop_is_what_runs_and_is_stopped_at_again",
        ),
    ),
    "D3.7": Row(
        "namespaces of subagents",
        (
            "tests/loop/test_subagent_persistence.py::test_calls_of_one_subagent_share_nothing_in_parallel_or_one_after_the_other",
            "tests/loop/test_subagent_persistence.py::test_a_question_from_any_depth_resumes_where_it_was_asked",
            "tests/loop/test_rows_gaps.py::test_a_subagent_is_kept_in_the_journal_of_the_run_that_called_it",
            "tests/loop/test_subagent_calls.py::test_after_a_crash_inside_a_child_its_finished_calls_do_not_run_again",
        ),
        differs=(
            "Each call has fresh state that is resumable; memory of its own (True) or none (False) "
            "is not offered."
        ),
    ),
    "D4.1": Row(
        "replay runs everything after a checkpoint again, on a branch",
        (
            "tests/loop/test_time_travel.py::test_a_replay_from_before_a_question_asks_anew_and_the_old_branch_stays",
            "tests/loop/test_time_travel.py::test_a_replay_at_a_question_asks_again_even_if_it_was_answered",
            "tests/loop/test_time_travel.py::test_a_replay_at_the_end_runs_nothing",
        ),
    ),
    "D4.2": Row(
        "writes from outside and in whose name they are made",
        (
            "tests/loop/test_time_travel.py::test_in_whose_name_a_write_is_made_decides_what_follows",
            "tests/loop/test_time_travel.py::test_results_written_in_the_name_of_the_tools_take_the_place_of_the_calls",
            "tests/loop/test_time_travel.py::test_calls_written_in_the_name_of_the_model_pass_the_gate",
            "tests/loop/test_durability.py::test_a_fork_goes_back_and_keeps_the_history",
        ),
        differs=(
            "as_node is input, model, tools or end; `fork` is the clone. A single parallel call "
            "cannot be named."
        ),
    ),
    "D4.3": Row(
        "several steps written at once",
        ("tests/loop/test_time_travel.py::test_several_steps_can_be_written_at_once",),
        differs="One after the other, not in one transaction: steps before a refused one stay.",
    ),
    "D4.4": Row(
        "state and history",
        (
            "tests/loop/test_time_travel.py::test_pages_of_history_are_newest_first_and_together_are_all_of_it",
            "tests/checkpoint/test_conformance.py::test_history_pages_from_the_newest",
            "tests/loop/test_breakpoints.py::test_a_stop_shows_the_state_and_is_passed_in_another_process",
        ),
        differs=(
            "History is the light listing (ids, step, source, summary) without values; get_state "
            "reads one. No filter yet."
        ),
    ),
    "D4.5": Row(
        "time travel and subagents",
        (
            "tests/loop/test_subagent_persistence.py::test_after_a_fork_of_its_parent_a_subagent_starts_afresh",
            "tests/loop/test_subagent_persistence.py::test_a_fork_from_before_the_call_keeps_the_old_branch_with_its_report",
            "tests/loop/test_subagent_persistence.py::test_a_taken_over_run_finds_the_subagents_of_the_run_before",
        ),
        differs=(
            "A subagent travels with its parent; its steps can be read in the journal, not gone on "
            "from alone."
        ),
    ),
    "D4.6": Row(
        "old threads and new code",
        (
            "tests/loop/test_time_travel.py::test_an_old_thread_is_read_by_code_whose_state_has_changed",
            "tests/checkpoint/test_sqlite.py::test_a_journal_of_the_first_version_is_migrated_and_keeps_its_runs",
            "tests/checkpoint/test_sqlite.py::test_a_newer_database_is_refused_untouched",
        ),
        differs=(
            "Keys may come and go; a stored value that no longer fits its type is an error. No "
            "migration hook for values."
        ),
    ),
    "D8.1": Row(
        "stream modes",
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
        "the shape of events, and where interrupts are",
        (
            "tests/loop/test_streams.py::test_several_modes_at_once_are_one_gapless_order",
            "tests/loop/test_sync_api.py::test_a_stream_is_the_events_and_last_the_result",
            "tests/loop/test_interrupts.py::test_answers_in_any_order_and_grouping_lead_to_the_same_transcript",
        ),
        differs=(
            "One form: Event with mode, path, number and data; the last item is the RunResult with "
            "the interrupts."
        ),
    ),
    "D8.3": Row(
        "typed projections of a run",
        (
            "tests/loop/test_streams.py::test_tasks_say_when_calls_begin_and_end_and_how",
            "tests/loop/test_streams.py::test_parallel_subagents_are_told_apart_by_call",
        ),
        differs=(
            "No projections or transformers: modes and paths already tell messages, tool calls and "
            "subagents apart."
        ),
    ),
    "D8.4": Row(
        "events of subagents carry the path to them",
        (
            "tests/loop/test_streams.py::test_events_of_a_subagent_carry_the_path_to_it",
            "tests/loop/test_streams.py::test_parallel_subagents_are_told_apart_by_call",
        ),
    ),
    "D8.5": Row(
        "what is left out of a stream",
        (
            "tests/loop/test_streams.py::test_internal_model_calls_are_not_in_the_stream_of_messages",
            "tests/loop/test_streams.py::test_values_are_the_state_a_caller_may_see_after_each_step",
            "tests/loop/test_streams.py::test_no_mode_is_only_the_result",
        ),
        differs=(
            "Internal model calls and hidden keys are left out; no tags, print_mode or output_keys."
        ),
    ),
    "D8.6": Row(
        "redaction and streams",
        (
            "tests/loop/test_rows_gaps.py::test_what_a_redactor_removes_from_a_result_is_in_no_stream_and_no_checkpoint",
        ),
        differs=(
            "Tool results are redacted before they are streamed; the model's own tokens come with "
            "the PII capability."
        ),
    ),
    "D8.7": Row(
        "a stream that a dropped client takes up again",
        (
            "tests/loop/test_streams.py::test_several_modes_at_once_are_one_gapless_order",
            "tests/loop/test_stream_consumers.py::test_a_consumer_that_goes_away_harms_nothing",
        ),
        differs=(
            "Events are numbered and the run can be resumed; a log of events to read on from comes "
            "with the server."
        ),
    ),
}
