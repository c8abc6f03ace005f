// What the model saw before it said something: the request in its parts.

import { useSignal } from "@preact/signals";
import type { VNode } from "preact";
import { useEffect } from "preact/hooks";
import { count, plural, shown } from "../lib/text";
import { type Thread, threadUri } from "../model/thread";
import { Dialog } from "../parts/dialog";
import { Loading, Refused } from "../parts/small";
import { readData } from "../server/mcp";
import { server } from "../state";

interface Part {
  name: string;
  text?: string;
  description?: string;
  chars?: number;
  cached?: boolean;
}
interface Message {
  role: string;
  text?: string;
  chars?: number;
  cached?: boolean;
  name?: string;
  calls?: { name: string; args_json: string }[];
}
interface Request {
  made_anew?: boolean;
  sections?: Part[];
  tools?: Part[];
  messages?: Message[];
  notes?: string[];
}

export function RequestDialog({
  thread,
  checkpoint,
  ns,
  close,
}: {
  thread: Thread;
  checkpoint: string;
  ns: string;
  close: () => void;
}): VNode {
  const request = useSignal<Request | null>(null);
  const problem = useSignal("");
  useEffect(() => {
    const end = new AbortController();
    readData(server.current, threadUri(thread.id, `requests/${encodeURIComponent(checkpoint)}`, { ns }), end.signal)
      .then((data) => (request.value = data as Request))
      .catch((failure: unknown) => {
        if (!end.signal.aborted) problem.value = String((failure as Error).message ?? failure);
      });
    return () => end.abort();
  }, [checkpoint, ns]);
  const found = request.value;
  return (
    <Dialog title="What the model saw" close={close} wide>
      <Refused text={problem.value} />
      {!found && !problem.value ? <Loading /> : null}
      {found ? (
        <div class="request">
          {found.made_anew ? (
            <p class="quiet">Rebuilt from the thread as it was before this answer, with the agent's current configuration.</p>
          ) : null}
          {found.notes?.map((note) => <p class="quiet">{shown(note, 500)}</p>)}
          {found.sections?.length ? <h3>System prompt</h3> : null}
          {found.sections?.map((one) => (
            <details>
              <summary>
                {shown(one.name, 100)} <Size part={one} />
              </summary>
              <pre tabIndex={0}>{shown(one.text, 200_000)}</pre>
            </details>
          ))}
          {found.tools?.length ? <h3>Tools</h3> : null}
          {found.tools?.length ? (
            <details>
              <summary>{plural(found.tools.length, "tool")}</summary>
              <dl>
                {found.tools.map((one) => (
                  <>
                    <dt>
                      <code>{shown(one.name, 100)}</code>
                    </dt>
                    <dd>{shown(one.description, 2_000)}</dd>
                  </>
                ))}
              </dl>
            </details>
          ) : null}
          {found.messages?.length ? <h3>Messages</h3> : null}
          {found.messages?.map((one) => (
            <details open={one === found.messages!.at(-1)}>
              <summary>
                {shown(one.role, 40)}
                {one.name ? ` ${shown(one.name, 80)}` : ""}{" "}
                {one.calls?.length && !one.text ? (
                  <span class="quiet">{plural(one.calls.length, "tool call")}</span>
                ) : (
                  <Size part={{ name: "", text: one.text, chars: one.chars, cached: one.cached }} />
                )}
              </summary>
              {one.text ? <pre tabIndex={0}>{shown(one.text, 200_000)}</pre> : null}
              {one.calls?.map((call) => (
                <p>
                  Calls <code>{shown(call.name, 100)}</code> <code>{shown(call.args_json, 2_000)}</code>
                </p>
              ))}
            </details>
          ))}
        </div>
      ) : null}
    </Dialog>
  );
}

function Size({ part }: { part: Part }): VNode {
  return (
    <span class="quiet">
      {count(part.chars ?? part.text?.length ?? 0)} characters{part.cached ? ", cached" : ""}
    </span>
  );
}
