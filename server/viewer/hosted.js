// Inside a host of MCP Apps: the one run that a tool's call is about.

const MOST_LOOKS = 60; // for a run that a call has begun

async function startInHost() {
  let following = "";
  let end = new AbortController();
  const follow = (runId) => {
    if (!runId || runId === following) return;
    following = runId;
    end.abort();
    end = new AbortController();
    followRun(server, runId, false, end.signal);
  };
  const server = new HostServer(window.parent, {
    context: applyContext,
    teardown: () => end.abort(),
    "tool-input": ({ arguments: args }) => {
      if (args?.run_id) seek(() => follow(args.run_id));
      // If it is not found, the result names it.
      else if (args?.goal) seek(() => findRun(server, args, end.signal).then(follow, () => {}));
    },
    "tool-result": (result) => {
      const runId =
        result.structuredContent?.run_id ?? result.taskId ?? /\brun_\w+/.exec(textOf(result))?.[0];
      if (runId && server.canCall) return follow(runId);
      end.abort(); // there is nothing to look for
      end = new AbortController();
      showResult(result);
    },
    "tool-cancelled": () => {
      const text = "The call was cancelled; a run that it began goes on.";
      if (!following) main.replaceChildren(el("p", {}, text));
    },
  });
  const seek = (find) => {
    if (server.canCall) find();
    if (!following) main.replaceChildren(el("p", { class: "quiet" }, "The run begins…"));
  };
  const size = () =>
    server.tell("ui/notifications/size-changed", {
      width: Math.ceil(document.documentElement.scrollWidth),
      height: Math.ceil(document.body.getBoundingClientRect().height),
    });
  try {
    await server.connect();
    new ResizeObserver(size).observe(document.body);
  } catch (failure) {
    showTrouble(failure.message);
  }
}

/** Show a result where no further calls are possible. */
function showResult(result) {
  const data = result.structuredContent;
  if (!data?.run_id) {
    main.replaceChildren();
    return showTrouble(textOf(result) || "The call has no result.");
  }
  const page = new RunPage({});
  page.showRun({ ...data, pending: [] });
  if ("answer" in data) page.showAnswer(data.answer, 0);
  page.buttons.replaceChildren();
  main.replaceChildren(page.element);
  showTrouble("This application lets pages call no tools: what you see is where the run stood.");
}

/** Return the run of a call that is still under way: the newest that works on its goal, if any. */
async function findRun(server, args, signal) {
  for (let looks = 0; looks < MOST_LOOKS; looks += 1) {
    const { threads } = await toolData(server, "threads", { limit: 10 }, 0, signal);
    const goal = String(args.goal).slice(0, 120);
    const found = (threads ?? []).find(
      ({ thread_id, last_run }) =>
        last_run?.status === "running" &&
        last_run.goal === goal &&
        (!args.thread_id || args.thread_id === thread_id),
    );
    if (found) return found.last_run.run_id;
    await pause(HOST_LOOK_SECONDS, signal);
  }
}

function applyContext({ theme, styles }) {
  if (theme === "light" || theme === "dark") document.documentElement.style.colorScheme = theme;
  for (const [name, value] of Object.entries(styles?.variables ?? {}))
    if (/^--[a-z0-9-]+$/.test(name) && typeof value === "string")
      document.documentElement.style.setProperty(name, value);
}
