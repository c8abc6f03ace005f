// The checkpoints of a thread as a timeline: what each changed, how it was then, and the way back.

import { useSignal } from "@preact/signals";
import type { VNode } from "preact";
import { useEffect } from "preact/hooks";
import { oneLine, plural, seen, shown } from "../lib/text";
import { type Thread, threadUri } from "../model/thread";
import type { Todo } from "../model/types";
import { agentName } from "../model/words";
import { Changed, Diff } from "../parts/diff";
import { Dialog } from "../parts/dialog";
import { Icon } from "../parts/icons";
import { Act, Ago, Loading, Refused } from "../parts/small";
import { Todos } from "../parts/todos";
import { CLIENT, readData } from "../server/mcp";
import { linkTo, may, server } from "../state";
import { ChangedFiles, FileDialog, type FileChangeFacts, useRead } from "./files";
import type { Attempt } from "./panel";

interface Checkpoint {
  checkpoint_id: string;
  step: number;
  time: string;
  author: string;
  summary: string;
  current: boolean;
  changed?: string[];
  files?: FileChangeFacts[];
}
interface Page {
  checkpoints: Checkpoint[];
  next: string | null;
}

export function History({ thread, attempt }: { thread: Thread; attempt: Attempt }): VNode {
  const rows = useSignal<Checkpoint[] | null>(null);
  const next = useSignal<string | null>(null);
  const problem = useSignal("");
  const chosen = useSignal("");
  const count = thread.overview.value?.checkpoint_id;
  useEffect(() => {
    const end = new AbortController();
    readData(server.current, threadUri(thread.id, "history", { limit: "50" }), end.signal)
      .then((data) => {
        const page = data as Page;
        const fresh = new Set(page.checkpoints.map((one) => one.checkpoint_id));
        const old = (rows.value ?? []).filter((one) => !fresh.has(one.checkpoint_id));
        const joined = rows.value?.some((one) => fresh.has(one.checkpoint_id));
        rows.value = joined ? [...page.checkpoints, ...old] : page.checkpoints;
        if (!joined || !old.length) next.value = page.next;
      })
      .catch((failure: unknown) => {
        if (!end.signal.aborted) problem.value = String((failure as Error).message ?? failure);
      });
    return () => end.abort();
  }, [thread, count]);
  const more = () =>
    attempt(async () => {
      const uri = threadUri(thread.id, "history", { limit: "50", before: next.value ?? "" });
      const page = (await readData(server.current, uri, new AbortController().signal)) as Page;
      rows.value = [...(rows.value ?? []), ...page.checkpoints];
      next.value = page.next;
    });
  if (problem.value) return <Refused text={problem.value} />;
  if (!rows.value) return <Loading />;
  if (!rows.value.length) return <p class="quiet">Nothing has happened yet.</p>;
  return (
    <>
      <ol class="timeline">
        {rows.value.map((one, at) => (
          <li key={one.checkpoint_id} class={one.current ? undefined : "left"}>
            <button
              type="button"
              class="checkpoint"
              aria-expanded={chosen.value === one.checkpoint_id}
              onClick={() =>
                (chosen.value = chosen.value === one.checkpoint_id ? "" : one.checkpoint_id)
              }
            >
              <span class="what" dir="auto">
                {summed(one)}
              </span>
              <span class="quiet">
                {one.summary && one.summary !== one.author
                  ? `${AUTHORS[one.author] ?? oneLine(one.author, 40)} · `
                  : ""}
                <Ago time={one.time} />
                {one.current ? "" : " · undone by a rewind"}
              </span>
              {one.files?.map((file) => (
                <span class="quiet file-line">
                  {seen(file.path)} <Changed added={file.added} removed={file.removed} />
                </span>
              ))}
            </button>
            {chosen.value === one.checkpoint_id ? (
              <At thread={thread} checkpoint={one} newest={at === 0} attempt={attempt} />
            ) : null}
          </li>
        ))}
      </ol>
      {next.value ? <Act label="Earlier" act={more} /> : null}
      <Decisions thread={thread} />
    </>
  );
}

const AUTHORS: Record<string, string> = {
  model: "answer of the model",
  tools: "results of tools",
  input: "request",
};

const HOOKS: Record<string, string> = {
  before_agent: "Prepared the run",
  before_model: "Prepared the request",
  after_model: "Checked the answer",
  after_agent: "Finished the run",
};

/** Return what a step did: names of tools once each, with how often. */
function summed({ summary, author }: Checkpoint): string {
  const [, verb, names] = /^(calls|ran) (\w+(?:, \w+)*)$/.exec(summary) ?? [];
  if (!verb) return HOOKS[summary || author] ?? oneLine(summary || author, 140);
  const counts = new Map<string, number>();
  for (const name of names!.split(", ")) counts.set(name, (counts.get(name) ?? 0) + 1);
  const said = [...counts].map(([name, times]) => (times > 1 ? `${name} ×${times}` : name));
  return oneLine(`${verb === "ran" ? "Ran" : "Calls"} ${said.join(", ")}`, 140);
}

/** How the thread was at a checkpoint, and what one can do from there. */
function At({
  thread,
  checkpoint,
  newest,
  attempt,
}: {
  thread: Thread;
  checkpoint: Checkpoint;
  newest: boolean;
  attempt: Attempt;
}): VNode {
  const id = checkpoint.checkpoint_id;
  const rewinding = useSignal(false);
  const file = useSignal("");
  const comparing = useSignal(false);
  const { data, problem } = useRead<{ todos: Todo[]; messages: number; files: { path: string }[] }>(
    threadUri(thread.id, `at/${encodeURIComponent(id)}`),
  );
  const fork = () =>
    attempt(async () => {
      const made = await thread.method("threads/fork", { threadId: thread.id, checkpointId: id });
      location.hash = linkTo(String(made.threadId));
    });
  return (
    <div class="at">
      {problem ? <Refused text={problem} /> : null}
      {data ? (
        <>
          {data.todos.length ? <Todos todos={data.todos} /> : null}
          {data.files.length ? (
            <ul class="tree">
              {data.files.map((one) => (
                <li>
                  <button type="button" class="file" onClick={() => (file.value = one.path)}>
                    <Icon name="file" />
                    <span class="path">{seen(one.path)}</span>
                  </button>
                </li>
              ))}
            </ul>
          ) : null}
          <p class="quiet">
            {plural(data.messages, "message")} · <code>{shown(id, 80)}</code>
          </p>
        </>
      ) : problem ? null : (
        <Loading />
      )}
      <div class="row">
        {!newest ? (
          <button type="button" onClick={() => (comparing.value = true)}>
            Changes since then
          </button>
        ) : null}
        {!newest && may("drive") ? (
          <button type="button" onClick={() => (rewinding.value = true)}>
            <Icon name="undo" /> Rewind to here…
          </button>
        ) : null}
        {may("drive") ? (
          <Act label="Fork" icon="fork" act={fork} title="Go on from here in a new thread" />
        ) : null}
      </div>
      {rewinding.value ? (
        <Rewind thread={thread} checkpoint={checkpoint} close={() => (rewinding.value = false)} />
      ) : null}
      {comparing.value ? (
        <Since thread={thread} from={id} close={() => (comparing.value = false)} />
      ) : null}
      {file.value ? (
        <FileDialog thread={thread} path={file.value} checkpoint={id} close={() => (file.value = "")} />
      ) : null}
    </div>
  );
}

function Since({ thread, from, close }: { thread: Thread; from: string; close: () => void }): VNode {
  const { data, problem } = useRead<{ files: FileChangeFacts[] }>(
    threadUri(thread.id, "diff", { from }),
  );
  return (
    <Dialog title="Changes since then" close={close} wide>
      <Refused text={problem} />
      {data ? (
        data.files.length ? (
          <ChangedFiles files={data.files} />
        ) : (
          <p class="quiet">No file has changed since.</p>
        )
      ) : problem ? null : (
        <Loading />
      )}
    </Dialog>
  );
}

interface Planned {
  path: string;
  action: string;
  where?: string;
  added?: number | null;
  removed?: number | null;
  diff?: string | null;
  why?: string | null;
}
interface Plan {
  allowed: boolean;
  problem: string | null;
  files: Planned[];
  messages_back: number;
  needs_force?: boolean;
}

const ACTIONS: Record<string, string> = {
  restore: "is restored",
  delete: "is deleted",
  create: "is created again",
  unchanged: "does not change",
  guarded: "does not change: the policy protects it",
  left: "does not change",
  conflict: "has changed since: somebody else changed it",
};

const PLACES: Record<string, string> = { disk: "on disk", state: "in the thread" };

/** Says what a rewind will change before anything is. */
function Rewind({
  thread,
  checkpoint,
  close,
}: {
  thread: Thread;
  checkpoint: Checkpoint;
  close: () => void;
}): VNode {
  const id = checkpoint.checkpoint_id;
  const { data, problem } = useRead<Plan>(
    threadUri(thread.id, `rewind/${encodeURIComponent(id)}`),
  );
  const refused = useSignal("");
  const act = async () => {
    refused.value = "";
    try {
      await thread.act("rewind", {
        thread_id: thread.id,
        checkpoint_id: id,
        ...(data?.needs_force && { force: true }),
      });
      location.reload();
    } catch (failure) {
      refused.value = String((failure as Error).message);
    }
  };
  const files = data?.files ?? [];
  return (
    <Dialog title="Rewind to here" close={close} wide>
      <p dir="auto">
        The thread goes back to “{summed(checkpoint)}”. Later steps stay in the history, and you can go
        back to them.
      </p>
      <Refused text={problem || (data && !data.allowed ? (data.problem ?? "It cannot be rewound.") : "")} />
      {data ? (
        <>
          <p>
            {data.messages_back ? (
              <>
                The conversation loses its last <strong>{plural(data.messages_back, "message")}</strong>.
              </>
            ) : (
              "The conversation stays as it is."
            )}{" "}
            {files.length ? "Files that change:" : "No file changes."}
          </p>
          <ul class="plan">
            {files.map((one) => (
              <li data-action={shown(one.action, 20)}>
                <details>
                  <summary>
                    <Icon name={one.action === "conflict" || one.action === "delete" ? "warn" : "file"} />
                    <span class="path">{seen(one.path)}</span> {ACTIONS[one.action] ?? shown(one.action, 40)}
                    {one.where ? <span class="tag">{PLACES[one.where] ?? shown(one.where, 20)}</span> : null}
                    <Changed added={one.added} removed={one.removed} />
                  </summary>
                  {one.why ? <p class="quiet">{shown(one.why, 500)}</p> : null}
                  {one.diff ? (
                    <Diff path={one.path} patch={one.diff} added={one.added} removed={one.removed} />
                  ) : null}
                </details>
              </li>
            ))}
          </ul>
        </>
      ) : problem ? null : (
        <Loading what="Checking what would change…" />
      )}
      <Refused text={refused.value} />
      <div class="row">
        <Act
          label={data?.needs_force ? "Rewind and overwrite those changes" : "Rewind"}
          style={data?.needs_force ? "stop" : "main"}
          icon="undo"
          act={act}
          disabled={!data?.allowed && !data?.needs_force}
        />
        <button type="button" onClick={close}>
          Change nothing
        </button>
      </div>
    </Dialog>
  );
}

interface Decided {
  time: string;
  by: string;
  client?: string;
  how?: string;
  decision: string;
  message?: string | null;
  tool?: string | null;
  asked_by?: string[];
  edited?: boolean;
  unasked?: boolean;
}

const DECIDED: Record<string, string> = {
  approve: "Approved",
  edit: "Edited and approved",
  reject: "Rejected",
  respond: "Responded to",
  answer: "Answered",
};

/** Who decided what, and when. */
function Decisions({ thread }: { thread: Thread }): VNode | null {
  const asked = thread.overview.value?.open_questions.length;
  const { data } = useRead<{ decisions: Decided[] }>(threadUri(thread.id, "decisions"), asked);
  if (!data?.decisions?.length) return null;
  return (
    <section>
      <h2>Decisions</h2>
      <ul class="decisions">
        {data.decisions.map((one) => (
          <li>
            <span>
              <strong>
                {one.unasked ? "Not allowed in this run:" : (DECIDED[one.decision] ?? shown(one.decision, 20))}
              </strong> {shown(one.tool ?? "", 100)}
              {one.asked_by?.length ? (
                <span class="quiet"> for {one.asked_by.map((who) => agentName(who, 40)).join(" › ")}</span>
              ) : null}
            </span>
            {one.message ? <span dir="auto">“{oneLine(one.message, 200)}”</span> : null}
            <span class="quiet">
              {shown(one.by || "you", 60)}
              {one.client ? (one.client === CLIENT.name ? ", in the studio" : `, ${shown(one.client, 60)}`) : ""}
              {one.how === "rule" ? ", by a rule" : ""} · <Ago time={one.time} />
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
