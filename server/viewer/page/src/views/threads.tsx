// The threads: what needs a person first, then what changed last; found by words and filters.

import { useSignal, useSignalEffect } from "@preact/signals";
import type { VNode } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { count, dollars, duration, oneLine, plural, shown } from "../lib/text";
import type { ThreadRow } from "../model/types";
import { Icon } from "../parts/icons";
import { Ago, isCommand, Loading, Status, worked } from "../parts/small";
import { keepLooking, lookNow } from "../server/looking";
import { readData } from "../server/mcp";
import { linkTo, may, narrow, server } from "../state";
import { title } from "./inbox_watch";

const PAGE = 50;
const SECONDS = 2;

interface Page {
  total: number;
  counts?: Record<string, number>;
  next: string | null;
  threads: ThreadRow[];
}

const FILTERS = ["status", "agent", "since", "until", "principal", "sort"];

/** Read "status:waiting agent:reviewer words" as what the server is asked for. */
export function readQuery(text: string): Record<string, string> {
  const asked: Record<string, string> = {};
  const words: string[] = [];
  for (const word of text.match(/[a-z]+:"[^"]*"|\S+/g) ?? []) {
    const [, name, value] = /^([a-z]+):"?([^"]*)"?$/.exec(word) ?? [];
    if (name && FILTERS.includes(name)) {
      if (value) asked[name] = name === "since" || name === "until" ? dayOf(value) : value;
    } else words.push(word);
  }
  if (words.length) asked.q = words.join(" ");
  return asked;
}

const DAYS = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

/** Return a day as a date: "monday", "today", "yesterday", or what was written. */
export function dayOf(text: string, today = new Date()): string {
  const at = DAYS.indexOf(text.toLowerCase());
  const back =
    at >= 0
      ? (today.getDay() - at + 7) % 7
      : { today: 0, yesterday: 1 }[text.toLowerCase()];
  if (back === undefined) return text;
  const day = new Date(today.getFullYear(), today.getMonth(), today.getDate() - back);
  return day.toISOString();
}

function searchUri(text: string, after: string): string {
  const asked: Record<string, string> = { ...readQuery(text), limit: `${PAGE}` };
  if (after) asked.after = after;
  const query = Object.entries(asked)
    .map(([name, one]) => `${name}=${encodeURIComponent(one)}`)
    .join("&");
  return `threads://search?${query}`;
}

export function Threads(): VNode {
  const rows = useSignal<ThreadRow[] | null>(null);
  const total = useSignal(0);
  const counts = useSignal<Record<string, number>>({});
  const next = useSignal<string | null>(null);
  const query = useSignal("");
  const pages = useSignal(1);
  const current = useSignal(-1);
  const list = useRef<HTMLTableSectionElement>(null);
  title.value = "Threads · Deep Agent";

  useSignalEffect(() => {
    const text = query.value;
    const end = new AbortController();
    let shownAs = "";
    const look = async () => {
      const first = (await readData(server.current, searchUri(text, ""), end.signal)) as Page;
      const key = `${pages.peek()} ${JSON.stringify(first)}`;
      if (key === shownAs) return SECONDS;
      const found = [...first.threads];
      let last = first;
      for (let page = 1; page < pages.peek() && last.next; page += 1) {
        last = (await readData(server.current, searchUri(text, last.next), end.signal)) as Page;
        found.push(...last.threads);
      }
      const ids = new Set<string>(); // what changes between two pages may be on both
      rows.value = found.filter((one) => !ids.has(one.thread_id) && ids.add(one.thread_id));
      total.value = first.total;
      counts.value = first.counts ?? {};
      next.value = last.next;
      shownAs = key;
      return SECONDS * pages.peek();
    };
    void keepLooking(look, end.signal);
    return () => end.abort();
  });

  useEffect(() => {
    const hear = (event: KeyboardEvent) => {
      if (!isCommand(event) || (event.key !== "j" && event.key !== "k")) return;
      const links = [...(list.current?.querySelectorAll<HTMLElement>("a") ?? [])];
      const step = event.key === "j" ? 1 : -1;
      current.value = Math.max(0, Math.min(links.length - 1, current.value + step));
      links[current.value]?.focus();
      event.preventDefault();
    };
    window.addEventListener("keydown", hear);
    return () => window.removeEventListener("keydown", hear);
  }, []);

  return (
    <div class="page threads-page">
      <header class="page-head">
        <h1>Threads</h1>
        {may("delegate") ? (
          <a class="button main" href="#new">
            <Icon name="plus" />
            New task
          </a>
        ) : null}
      </header>
      <Search query={query} counts={counts.value} />
      {rows.value === null ? (
        <Loading />
      ) : rows.value.length ? (
        <>
          <table id="threads">
            <thead>
              <tr>
                <th scope="col">Thread</th>
                <th scope="col">Status</th>
                <th scope="col" class="roomy">
                  Agent
                </th>
                <th scope="col" class="roomy number">
                  Time
                </th>
                <th scope="col" class="roomy number">
                  Cost
                </th>
                <th scope="col" class="number">
                  Changed
                </th>
              </tr>
            </thead>
            <tbody ref={list}>
              {rows.value.map((row) => (
                <Row key={row.thread_id} row={row} />
              ))}
            </tbody>
          </table>
          <p class="row quiet">
            <span>
              {rows.value.length < total.value
                ? `${count(rows.value.length)} of ${plural(total.value, "thread")}`
                : plural(total.value, "thread")}
            </span>
            {next.value ? (
              <button
                type="button"
                onClick={() => {
                  pages.value += 1;
                  lookNow();
                }}
              >
                Show more
              </button>
            ) : null}
          </p>
        </>
      ) : query.value ? (
        <Nothing clear={() => (query.value = "")} />
      ) : (
        <FirstVisit />
      )}
    </div>
  );
}

const SEARCHED = "Search titles, texts, ids";

const QUICK = [
  ["needs_approval", "status:waiting", "need you"],
  ["running", "status:running", "running"],
  ["failed", "status:failed", "failed"],
] as const;

function Search({
  query,
  counts,
}: {
  query: { value: string };
  counts: Record<string, number>;
}): VNode {
  const field = useRef<HTMLInputElement>(null);
  const timer = useRef(0);
  const set = (text: string) => {
    clearTimeout(timer.current);
    query.value = text;
    if (field.current) field.current.value = text;
  };
  return (
    <search class="search">
      <label class="field">
        <span class="unseen">Search threads</span>
        <Icon name="search" />
        <input
          id="search"
          ref={field}
          type="search"
          placeholder={narrow.value ? SEARCHED : `${SEARCHED}; or status:waiting agent:reviewer since:monday`}
          spellcheck={false}
          onInput={(event) => {
            const text = event.currentTarget.value;
            clearTimeout(timer.current);
            timer.current = window.setTimeout(() => (query.value = text.trim()), 40);
          }}
          onKeyDown={(event) => {
            if (event.key !== "Escape") return;
            set("");
            event.currentTarget.blur();
          }}
        />
        <kbd aria-hidden="true">/</kbd>
      </label>
      <div class="filters">
        {QUICK.filter(([status]) => counts[status]).map(([status, filter, words]) => {
          const on = query.value.includes(filter);
          return (
            <button
              type="button"
              class="filter"
              data-status={status}
              aria-pressed={on}
              onClick={() => set(on ? query.value.replace(filter, "").trim() : `${query.value} ${filter}`.trim())}
            >
              {count(counts[status])} {words}
            </button>
          );
        })}
      </div>
    </search>
  );
}

function Row({ row }: { row: ThreadRow }): VNode {
  const to = row.last_run ?? row.thread_id;
  return (
    <tr data-status={row.status}>
      <td dir="auto" class="title">
        <a href={linkTo(to)}>{oneLine(row.title || "Untitled", 140)}</a>
        {row.match ? (
          <span class="quiet match">{oneLine(row.match, 200)}</span>
        ) : row.status === "failed" && row.reason ? (
          <span class="quiet match">{oneLine(row.reason, 160)}</span>
        ) : null}
      </td>
      <td>
        <Status status={row.status} />
        {row.open_questions && row.open_questions > 1 ? (
          <span class="quiet"> {row.open_questions}</span>
        ) : null}
      </td>
      <td class="roomy">
        {row.agent ? shown(row.agent, 40) : ""}
        {row.principal ? <span class="quiet"> {shown(row.principal, 60)}</span> : null}
      </td>
      <td class="roomy number">{duration(worked(row))}</td>
      <td class="roomy number">{costOf(row)}</td>
      <td class="number">
        <Ago time={row.updated} />
      </td>
    </tr>
  );
}

function costOf(row: ThreadRow): string {
  if (row.cost) return dollars(row.cost);
  return row.tokens ? `${count(row.tokens)} tokens` : "";
}

function Nothing({ clear }: { clear: () => void }): VNode {
  return (
    <div class="empty">
      <h2>Nothing found.</h2>
      <p>
        All words must occur in the title, the texts or the ids of a thread. Filters look like this:{" "}
        <code>status:failed</code>, <code>agent:reviewer</code>, <code>since:monday</code>,{" "}
        <code>until:yesterday</code>.
      </p>
      <button type="button" onClick={clear}>
        Show all threads
      </button>
    </div>
  );
}

function FirstVisit(): VNode {
  return (
    <div class="empty">
      <h2>No threads yet.</h2>
      <p>
        A thread is one piece of work: what was asked, what the agent did, and every file it changed.
        Threads begin when a client calls a tool, such as <code>task</code>, or here.
      </p>
      <ul>
        {may("delegate") ? (
          <li>
            <a href="#new">Start a task</a> on this page.
          </li>
        ) : null}
        <li>
          In Claude, or any other client that is connected to this server, say: “Give this to Deep
          Agent: …”
        </li>
        <li>
          To connect a client, run <code>deep-agent-mcp install claude-code</code>.
        </li>
      </ul>
    </div>
  );
}
