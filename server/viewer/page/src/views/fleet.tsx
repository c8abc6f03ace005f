// What this server does by the clock, what waits in its queue, its limits, and the other replicas.

import { useSignal } from "@preact/signals";
import type { ComponentChild, VNode } from "preact";
import { useEffect } from "preact/hooks";
import { clock, count, duration, oneLine, plural, shown } from "../lib/text";
import { Ago, Loading } from "../parts/small";
import { keepLooking } from "../server/looking";
import { readData } from "../server/mcp";
import { linkTo, server } from "../state";
import { title } from "./inbox_watch";

const SECONDS = 3;

interface Queued {
  run_id: string;
  title: string;
  since: string;
  doing?: string | null;
}
interface Schedule {
  name: string;
  status: string;
  principal?: string;
  cron: string;
  timezone: string;
  goal: string;
  agent?: string | null;
  next_at?: string | null;
  last_at?: string | null;
  last_run_id?: string | null;
  last_error?: string | null;
}
interface Replica {
  id: string;
  host: string;
  version: string;
  started: string;
  silent_seconds: number;
  working: number;
  draining: boolean;
  self: boolean;
}
interface Facts {
  queued: Queued[];
  quotas: { workers: number | null; max_runs: number | null; per_minute: number | null };
  working: number;
  schedules: string | null;
  replicas?: Replica[];
}

export function Fleet(): VNode {
  title.value = "Server · Deep Agent";
  const facts = useSignal<Facts | null>(null);
  const schedules = useSignal<Schedule[]>([]);
  useEffect(() => {
    const end = new AbortController();
    const look = async () => {
      const found = (await readData(server.current, "studio://fleet", end.signal)) as Facts;
      if (found.schedules) {
        const read = await readData(server.current, found.schedules, end.signal);
        schedules.value = read.schedules as Schedule[];
      }
      facts.value = found;
      return SECONDS;
    };
    void keepLooking(look, end.signal);
    return () => end.abort();
  }, []);
  const found = facts.value;
  return (
    <div class="page">
      <h1>Server</h1>
      {found ? (
        <>
          <p class="quiet">{load(found)}</p>
          {found.schedules ? <Schedules schedules={schedules.value} /> : null}
          {found.queued.length ? <Queue queued={found.queued} /> : null}
          {found.replicas?.length ? <Replicas replicas={found.replicas} /> : null}
        </>
      ) : (
        <Loading />
      )}
    </div>
  );
}

/** Say how much works, and how much may. */
function load({ working, quotas }: Facts): string {
  const parts = [
    quotas.max_runs === null
      ? `${plural(working, "run")} working`
      : `${count(working)} of at most ${plural(quotas.max_runs, "run")} working`,
  ];
  if (quotas.workers !== null) parts.push(`${plural(quotas.workers, "worker")} on this server`);
  if (quotas.per_minute !== null) parts.push(`at most ${plural(quotas.per_minute, "new run")} a minute`);
  return `${parts.join("; ")}.`;
}

function Table({
  name,
  columns,
  children,
}: {
  name: string;
  columns: string[];
  children: ComponentChild;
}): VNode {
  return (
    <section>
      <h2>{name}</h2>
      <div class="wide-table" tabIndex={0} role="group" aria-label={name}>
        <table class="facts-table">
          <thead>
            <tr>
              {columns.map((one) => (
                <th scope="col">{one}</th>
              ))}
            </tr>
          </thead>
          <tbody>{children}</tbody>
        </table>
      </div>
    </section>
  );
}

function Schedules({ schedules }: { schedules: Schedule[] }): VNode {
  if (!schedules.length)
    return (
      <section>
        <h2>Schedules</h2>
        <p class="quiet">
          No schedules yet. Add one with <code>deep-agent-mcp schedules add</code>.
        </p>
      </section>
    );
  return (
    <Table name="Schedules" columns={["Task", "When", "Next", "Last run"]}>
      {schedules.map((one) => (
        <tr key={`${one.principal} ${one.name}`}>
          <td dir="auto">
            <strong>{oneLine(one.name, 60)}</strong>
            {one.status === "active" ? null : <span class="tag">{shown(one.status, 20)}</span>}
            <span class="quiet below">
              {oneLine(one.goal, 160)}
              {one.agent ? ` (${shown(one.agent, 60)})` : ""}
            </span>
          </td>
          <td data-label="When">
            <code>{shown(one.cron, 60)}</code>
            <span class="quiet below">{shown(one.timezone, 60)}</span>
          </td>
          <td data-label="Next">
            {one.status === "active" && one.next_at ? (
              <>
                <Ago time={one.next_at} />
                <span class="quiet below">{clock(one.next_at)}</span>
              </>
            ) : null}
          </td>
          <td data-label="Last run">
            {one.last_run_id ? (
              <a href={linkTo(one.last_run_id)}>
                <Ago time={one.last_at ?? undefined} />
              </a>
            ) : (
              <span class="quiet">never</span>
            )}
            {one.last_error ? <span class="removed below">{oneLine(one.last_error, 200)}</span> : null}
          </td>
        </tr>
      ))}
    </Table>
  );
}

function Queue({ queued }: { queued: Queued[] }): VNode {
  return (
    <Table name="Queue" columns={["Task", "Waits for", "Since"]}>
      {queued.map((one) => (
        <tr key={one.run_id}>
          <td dir="auto">
            <a href={linkTo(one.run_id)}>{oneLine(one.title, 160)}</a>
          </td>
          <td dir="auto" data-label="Waits for">
            <WaitsFor said={one.doing ?? ""} />
          </td>
          <td data-label="Since">
            <Ago time={one.since} />
          </td>
        </tr>
      ))}
    </Table>
  );
}

function WaitsFor({ said }: { said: string }): VNode {
  const [, run] = /^queued behind run (run_\w+)$/.exec(said) ?? [];
  if (!run) return <>{oneLine(said.replace(/^waits for /, ""), 160)}</>;
  return (
    <>
      another run: <a href={linkTo(run)}>{run}</a>
    </>
  );
}

function Replicas({ replicas }: { replicas: Replica[] }): VNode {
  return (
    <Table name="Replicas" columns={["Server", "Runs", "State", "Version", "Started"]}>
      {replicas.map((one) => (
        <tr key={one.id}>
          <td>
            {shown(one.host, 80)} {one.self ? <span class="tag">this one</span> : null}
            <code class="quiet below">{shown(one.id, 80)}</code>
          </td>
          <td data-label="Runs">{count(one.working)}</td>
          <td data-label="State">
            {one.draining ? "stopping" : "working"}
            {one.silent_seconds >= 5 ? (
              <span class="quiet below">not seen for {duration(one.silent_seconds)}</span>
            ) : null}
          </td>
          <td data-label="Version">{shown(one.version, 40)}</td>
          <td data-label="Started">
            <Ago time={one.started} />
          </td>
        </tr>
      ))}
    </Table>
  );
}
