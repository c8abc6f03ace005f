// The pages: a run, a thread, and the list of all threads.

const ANSWERED_BY_OTHERS_SECONDS = 1.5;
const LIST_SECONDS = 1.5;
const HOST_LOOK_SECONDS = 1.5;
const PAGE = 20;

/** Follow a run until it has ended; `linked`: whether there are other pages to go to. */
async function followRun(server, runId, linked, signal) {
  let threadId = "";
  let lastThread = "";
  let behind = true; // there is something to see, so do not wait for more
  let acts = 0;
  const look = async () => {
    const seconds = behind ? 0 : server.patience;
    const asked = { run_id: runId, wait_seconds: seconds, events_after: page.log.after };
    const before = acts;
    const looked = toolData(server, "wait", asked, seconds, signal);
    const data = await found(server, `run ${runId}`, looked);
    if (before !== acts) return 0; // it may tell of a time before what the person did
    threadId = data.thread_id;
    behind = Boolean(data.events_more) || isCrowded(data);
    page.showRun(data);
    if (!page.element.isConnected) main.replaceChildren(page.element);
    const now = `${data.status} ${data.events_next}`;
    if (now !== lastThread && !(behind && lastThread)) {
      const named = { thread_id: threadId, limit: 1 };
      const thread = await toolData(server, "threads", named, 0, signal);
      if (before !== acts) return 0;
      page.showThread(thread, runId, linked);
      lastThread = now;
    }
    if (behind) return 0;
    if ("answer" in data && !page.hasAnswer()) await rest(0);
    if (data.status === "running") return server.patience ? 0 : HOST_LOOK_SECONDS;
    if (["done", "cancelled"].includes(data.status)) return null;
    return ANSWERED_BY_OTHERS_SECONDS;
  };
  // What a person asks for is said at once, and then the run is looked at.
  const act = async (tool, args) => {
    let data;
    try {
      data = await toolData(server, tool, { run_id: runId, ...args }, 0, signal);
    } catch (failure) {
      if (failure.kind !== "gone") throw failure;
      const advice =
        "It may have heard you all the same: see how the run stands before you repeat it.";
      throw new Failure("gone", `${failure.message} ${advice}`);
    }
    acts += 1;
    lastThread = "";
    page.showRun(data);
    lookNow();
  };
  const rest = async (offset) => {
    const asked = { run_id: runId, wait_seconds: 0, answer_offset: offset };
    const data = await toolData(server, "wait", asked, 0, signal);
    page.showAnswer(data.answer ?? "", Number(/answer_offset=(\d+)/.exec(data.next)?.[1] ?? 0));
  };
  const page = new RunPage({
    answer: (answers) => act("reply", { answers, wait_seconds: 0 }),
    goOn: () => act("reply", { wait_seconds: 0 }),
    cancel: () => act("cancel", {}),
    transcript:
      server.canRead &&
      (async () => {
        const read = await server.read(`thread://${threadId}/transcript`, signal);
        page.showTranscript(read.contents?.[0]?.text ?? "");
      }),
    rest,
  });
  await keepLooking(server, look, signal);
}

/** Return what was asked for. That it is not there is said as people need it, not as models do. */
async function found(server, what, asked) {
  try {
    return await asked;
  } catch (failure) {
    if (failure.kind !== "refused" || !failure.message.startsWith("There is no ")) throw failure;
    const why = server.token
      ? "that this token may see; it was deleted, or is somebody else's."
      : "on this server; it may have been deleted.";
    throw new Failure("refused", `There is no ${what} ${why}`);
  }
}

/** Show a thread that has no run, or find its newest one. */
async function followThread(server, threadId, signal) {
  await keepLooking(
    server,
    async () => {
      const asked = toolData(server, "threads", { thread_id: threadId, limit: 1 }, 0, signal);
      const thread = await found(server, `thread ${threadId}`, asked);
      const newest = thread.runs?.[0];
      if (newest) return (location.replace(`#${encodeURIComponent(newest.run_id)}`), null);
      const page = new RunPage({});
      page.showThread(thread, "", false);
      main.replaceChildren(
        el("h2", {}, shown(threadId, 200)),
        el("p", {}, "No runs yet."),
        page.todos,
      );
      return LIST_SECONDS;
    },
    signal,
  );
}

/** Show the threads, last changed first. */
async function listThreads(server, signal) {
  document.title = "Deep Agent";
  const body = el("tbody");
  const more = el("div", { class: "row" });
  const table = el(
    "table",
    { id: "threads" },
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        el("th", { scope: "col" }, "Last run"),
        el("th", { scope: "col" }, "Status"),
        el("th", { scope: "col", class: "wide" }, "Thread"),
        el("th", { scope: "col" }, "Changed"),
      ),
    ),
    body,
  );
  let pages = 1;
  let shownAs = "";
  let last = {};
  const ask = (before) =>
    toolData(server, "threads", { limit: PAGE, ...(before && { before }) }, 0, signal);
  const showMore = () => {
    pages += 1;
    lookNow();
  };
  await keepLooking(
    server,
    async () => {
      const newest = await ask("");
      const key = `${pages} ${JSON.stringify(newest)}`;
      const changed = key !== shownAs; // what changes comes to the top
      if (changed) {
        const rows = [...(newest.threads ?? [])];
        last = newest;
        for (let page = 1; page < pages && last.next_before; page += 1) {
          last = await ask(last.next_before);
          rows.push(...(last.threads ?? []));
        }
        fill(body, rows, () => threadRows(rows));
        shownAs = key;
      }
      const next = last.next_before;
      fill(more, Boolean(next), () => [next ? button("More", showMore) : ""]);
      if (!table.isConnected) main.replaceChildren(el("h2", {}, "Threads"), table, more);
      return LIST_SECONDS * (changed ? pages : 1);
    },
    signal,
  );
}

function threadRows(rows) {
  if (!rows.length)
    return [
      el(
        "tr",
        {},
        el(
          "td",
          { colspan: "4", class: "quiet" },
          "No threads yet. They begin when a client calls a tool, such as task.",
        ),
      ),
    ];
  return rows.map((row) => {
    const run = row.last_run;
    const link = run
      ? runLink(run)
      : el("a", { href: `#${encodeURIComponent(row.thread_id)}` }, "no run");
    return el(
      "tr",
      {},
      el("td", { dir: "auto" }, link),
      el("td", {}, run ? statusMark(run.status) : ""),
      el("td", { class: "wide" }, el("code", {}, shown(row.thread_id, 200))),
      el("td", {}, el("time", { datetime: shown(row.updated, 40) }, clock(row.updated))),
    );
  });
}
