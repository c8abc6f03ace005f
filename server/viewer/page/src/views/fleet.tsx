// The servers that share the work, what waits in line, and what runs by the clock.

import { useSignal } from "@preact/signals";
import type { VNode } from "preact";
import { useEffect } from "preact/hooks";
import { oneLine, shown } from "../lib/text";
import { Ago, Loading } from "../parts/small";
import { keepLooking } from "../server/looking";
import { type Data, readData } from "../server/mcp";
import { linkTo, server } from "../state";
import { title } from "./inbox_watch";

export function Fleet(): VNode {
  title.value = "Servers · Deep Agent";
  const fleet = useSignal<Data | null>(null);
  useEffect(() => {
    const end = new AbortController();
    const look = async () => {
      const found = await readData(server.current, "studio://fleet", end.signal);
      if (typeof found.schedules === "string") {
        const read = await readData(server.current, found.schedules, end.signal);
        found.schedules = read.schedules;
      }
      fleet.value = found;
      return 3;
    };
    void keepLooking(look, end.signal);
    return () => end.abort();
  }, []);
  const found = fleet.value;
  return (
    <div class="page">
      <h1>Servers</h1>
      {!found ? <Loading /> : null}
      {found
        ? Object.entries(found).map(([name, value]) => <Part name={name} value={value} />)
        : null}
    </div>
  );
}

const TITLES: Record<string, string> = {
  replicas: "Replicas",
  queued: "In line",
  schedules: "Schedules",
  quotas: "Quotas",
};

function Part({ name, value }: { name: string; value: unknown }): VNode | null {
  if (value === null || typeof value !== "object") return null;
  const rows = Array.isArray(value) ? (value as Data[]) : [value as Data];
  if (!rows.length) return null;
  const columns = [...new Set(rows.flatMap((one) => Object.keys(one)))];
  return (
    <section>
      <h2>{TITLES[name] ?? shown(name, 60)}</h2>
      <div class="wide-table" tabIndex={0} role="group" aria-label={TITLES[name] ?? name}>
        <table>
          <thead>
            <tr>
              {columns.map((one) => (
                <th scope="col">{shown(one, 60).replaceAll("_", " ")}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr>
                {columns.map((one) => (
                  <td dir="auto">
                    <Cell value={row[one]} />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Cell({ value }: { value: unknown }): VNode {
  const text = value === null || value === undefined ? "" : value;
  if (typeof text === "string" && /^(run|thr)_\w+$/.test(text))
    return <a href={linkTo(text)}>{text}</a>;
  if (typeof text === "string" && /^\d{4}-\d\d-\d\dT/.test(text)) return <Ago time={text} />;
  return <span>{oneLine(text, 200)}</span>;
}
