// The files of a thread: what it changed, and all there are.

import { useSignal } from "@preact/signals";
import type { VNode } from "preact";
import { useEffect } from "preact/hooks";
import { coloured, languageOf } from "../lib/highlight";
import { Markdown } from "../lib/markdown";
import { bytes, plural, seen, shown } from "../lib/text";
import { type Thread, threadUri } from "../model/thread";
import { Changed, Diff } from "../parts/diff";
import { Icon } from "../parts/icons";
import { Dialog } from "../parts/dialog";
import { Loading, Refused } from "../parts/small";
import { readData } from "../server/mcp";
import { server } from "../state";

export interface FileChangeFacts {
  path: string;
  kind?: string;
  added?: number | null;
  removed?: number | null;
  diff?: string | null;
  diff_cut?: boolean;
  binary?: boolean;
}

interface Entry {
  path: string;
  is_dir: boolean;
  size?: number | null;
}

export function useRead<T>(uri: string, again: unknown = ""): { data: T | null; problem: string } {
  const data = useSignal<T | null>(null);
  const problem = useSignal("");
  useEffect(() => {
    if (!uri) return;
    const end = new AbortController();
    problem.value = "";
    readData(server.current, uri, end.signal)
      .then((found) => (data.value = found as T))
      .catch((failure: unknown) => {
        if (!end.signal.aborted) problem.value = String((failure as Error).message ?? failure);
      });
    return () => end.abort();
  }, [uri, again]);
  return { data: data.value, problem: problem.value };
}

export function Files({ thread }: { thread: Thread }): VNode {
  const open = useSignal("");
  const again = thread.overview.value?.checkpoint_id;
  const { data } = useRead<{ files: FileChangeFacts[] }>(threadUri(thread.id, "diff"), again);
  const changed = data?.files ?? [];
  return (
    <>
      {changed.length ? (
        <section>
          <h2>Changed by this thread</h2>
          <ChangedFiles files={changed} />
        </section>
      ) : null}
      <section>
        <h2>All files</h2>
        <Folder thread={thread} path="/" again={again} open={(path) => (open.value = path)} first />
      </section>
      {open.value ? (
        <FileDialog thread={thread} path={open.value} close={() => (open.value = "")} />
      ) : null}
    </>
  );
}

const KINDS: Record<string, string> = { created: "new", deleted: "deleted" };

/** Files with their changes, each unfolded to its diff. */
export function ChangedFiles({ files }: { files: FileChangeFacts[] }): VNode {
  return (
    <ul class="changed-files">
      {files.map((one) => (
        <li key={one.path}>
          <details>
            <summary>
              <Icon name="right" />
              <Icon name="file" />
              <span class="path" dir="ltr">
                {seen(one.path)}
              </span>
              {one.kind && KINDS[one.kind] ? <span class="tag">{KINDS[one.kind]}</span> : null}
              <Changed added={one.added} removed={one.removed} />
            </summary>
            {one.diff ? (
              <>
                <Diff path={one.path} patch={one.diff} added={one.added} removed={one.removed} />
                {one.diff_cut ? <p class="quiet">The rest is too long to show here.</p> : null}
              </>
            ) : (
              <p class="quiet">{one.binary ? "This is not a text file." : "The content does not change."}</p>
            )}
          </details>
        </li>
      ))}
    </ul>
  );
}

function Folder({
  thread,
  path,
  again,
  open,
  first = false,
}: {
  thread: Thread;
  path: string;
  again: unknown;
  open: (path: string) => void;
  first?: boolean;
}): VNode {
  const { data, problem } = useRead<{ entries: Entry[]; more?: boolean }>(
    threadUri(thread.id, "tree", { path }),
    again,
  );
  if (problem) return <Refused text={problem} />;
  if (!data) return <Loading />;
  if (!data.entries.length) return <p class="quiet">{first ? "No files." : "Empty."}</p>;
  return (
    <ul class="tree">
      {data.entries.map((one) => {
        const name = one.path.replace(/\/$/, "").split("/").at(-1) ?? one.path;
        return (
          <li key={one.path}>
            {one.is_dir ? (
              <SubFolder
                thread={thread}
                entry={one}
                name={name}
                again={again}
                open={open}
                alone={data.entries.length === 1}
              />
            ) : (
              <button type="button" class="file" onClick={() => open(one.path)}>
                <Icon name="file" />
                <span class="path">{shown(name, 300)}</span>
                <span class="quiet">{typeof one.size === "number" ? bytes(one.size) : ""}</span>
              </button>
            )}
          </li>
        );
      })}
      {data.more ? <li class="quiet">There are more, which are not shown.</li> : null}
    </ul>
  );
}

function SubFolder({
  thread,
  entry,
  name,
  again,
  open,
  alone,
}: {
  thread: Thread;
  entry: Entry;
  name: string;
  again: unknown;
  open: (path: string) => void;
  /** Whether there is nothing beside it: it is open at first. */
  alone: boolean;
}): VNode {
  const unfolded = useSignal(alone);
  return (
    <details open={unfolded.value} onToggle={(event) => (unfolded.value = event.currentTarget.open)}>
      <summary>
        <Icon name="right" />
        <Icon name="folder" />
        <span class="path">{shown(name, 300)}</span>
      </summary>
      {unfolded.value ? <Folder thread={thread} path={entry.path} again={again} open={open} /> : null}
    </details>
  );
}

interface Content {
  text: string | null;
  blob: string | null;
  mime: string;
}

/** A file as it is now, or at a checkpoint. */
export function FileDialog({
  thread,
  path,
  checkpoint = "",
  close,
}: {
  thread: Thread;
  path: string;
  checkpoint?: string;
  close: () => void;
}): VNode {
  const content = useSignal<Content | null>(null);
  const problem = useSignal("");
  const source = useSignal(false);
  useEffect(() => {
    const end = new AbortController();
    const base = checkpoint ? `at/${checkpoint}/files/` : "files/";
    const uri = threadUri(thread.id, base + path.replace(/^\//, "").split("/").map(encodeURIComponent).join("/"));
    server.current
      .read(uri, end.signal)
      .then(({ contents }) => {
        const one = contents?.[0];
        content.value = {
          text: one?.text ?? null,
          blob: one?.blob ?? null,
          mime: one?.mimeType ?? "",
        };
      })
      .catch((failure: unknown) => {
        if (!end.signal.aborted) problem.value = String((failure as Error).message ?? failure);
      });
    return () => end.abort();
  }, [path, checkpoint]);
  const found = content.value;
  const isMarkdown = /\.(md|markdown)$/i.test(path);
  return (
    <Dialog title={shown(path, 300)} close={close} wide>
      <Refused text={problem.value} />
      {!found && !problem.value ? <Loading /> : null}
      {found ? (
        <>
          <p class="row">
            {isMarkdown && found.text !== null ? (
              <button type="button" onClick={() => (source.value = !source.value)}>
                {source.value ? "Show rendered" : "Show source"}
              </button>
            ) : null}
            <button type="button" onClick={() => download(path, found)}>
              <Icon name="download" /> Download
            </button>
            {found.text !== null ? (
              <span class="quiet">{plural(linesIn(found.text), "line")}</span>
            ) : null}
          </p>
          <FileBody path={path} content={found} source={source.value || !isMarkdown} />
        </>
      ) : null}
    </Dialog>
  );
}

function linesIn(text: string): number {
  return text ? text.replace(/\n$/, "").split("\n").length : 0;
}

function FileBody({
  path,
  content,
  source,
}: {
  path: string;
  content: Content;
  source: boolean;
}): VNode {
  if (content.text !== null)
    return source ? (
      <pre tabIndex={0} role="group" aria-label="Content">
        {coloured(content.text.slice(0, 500_000), languageOf(path))}
      </pre>
    ) : (
      <Markdown text={content.text} />
    );
  if (content.blob !== null && /^image\/(png|jpeg|gif|webp)$/.test(content.mime))
    return <img src={`data:${content.mime};base64,${content.blob}`} alt={shown(path, 200)} />;
  return <p class="quiet">This is not a text file ({shown(content.mime, 100)}).</p>;
}

function download(path: string, { text, blob }: Content): void {
  const data = text ?? Uint8Array.from(atob(blob ?? ""), (one) => one.charCodeAt(0));
  const url = URL.createObjectURL(new Blob([data as BlobPart], { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = path.split("/").at(-1) || "file";
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
