// Keeps the inbox up to date wherever one is: the count in the title, and notifications.

import { effect, signal } from "@preact/signals";
import { oneLine } from "../lib/text";
import type { Inbox, Me, Question } from "../model/types";
import { inWords } from "../model/words";
import { Failure, readData, stored } from "../server/mcp";
import { heard, isSeen, tokenAsked } from "../server/looking";
import { parsed } from "../lib/exact";
import { inbox, me, now, server, waiting } from "../state";

const SECONDS = 2;
const UNSEEN_SECONDS = 15;
const FLEET_SECONDS = 30;
const KEY = "deep-agent-notify";

/** What waits in line and runs by the clock, as far as it is known. */
export const fleet = signal<{ queued?: unknown[]; schedules?: unknown } | null>(null);

export const title = signal("Deep Agent");
export const canNotify = signal(typeof Notification !== "undefined" && Notification.permission !== "denied" && isSecureContext);
export const notifies = signal(
  typeof Notification !== "undefined" &&
    Notification.permission === "granted" &&
    stored(() => localStorage.getItem(KEY)) === "yes",
);

effect(() => {
  document.title = waiting.value ? `(${waiting.value}) ${title.value}` : title.value;
});

export async function askToNotify(): Promise<void> {
  const answer = await Notification.requestPermission();
  notifies.value = answer === "granted";
  canNotify.value = answer !== "denied";
  if (notifies.value) stored(() => localStorage.setItem(KEY, "yes"));
}

/** Look into the inbox again and again; a tab that nobody sees only does so to notify. */
export async function watchInbox(signal: AbortSignal): Promise<void> {
  let known: Set<string> | null = null;
  let fleetAt = 0;
  while (!signal.aborted) {
    now.value = Date.now();
    try {
      if (!tokenAsked.peek() && (isSeen() || notifies.value)) {
        me.value ??= (await readData(server.current, "studio://me", signal)) as Me;
        const found = (await readData(server.current, "inbox://questions?limit=100", signal)) as Inbox;
        if (found.version !== inbox.value?.version || found.runs_working !== inbox.value.runs_working)
          inbox.value = found;
        if (Date.now() > fleetAt + FLEET_SECONDS * 1000) {
          fleetAt = Date.now();
          fleet.value = await readData(server.current, "studio://fleet", signal);
        }
        const ids = new Set(found.questions.map((one) => one.id));
        if (known && notifies.value && !isSeen())
          for (const one of found.questions) if (!known.has(one.id)) notify(one);
        known = ids;
      }
    } catch (failure) {
      // The page that is shown says what stands in the way.
      if (!(failure instanceof Failure) && !signal.aborted) throw failure;
    }
    await rest(signal).catch(() => {});
  }
}

function rest(signal: AbortSignal): Promise<void> {
  const seconds = isSeen() ? SECONDS : UNSEEN_SECONDS;
  return heard(signal, (done) => {
    const timer = isSeen() || notifies.value ? setTimeout(done, seconds * 1000) : 0;
    window.addEventListener("look-now", done);
    return () => {
      clearTimeout(timer);
      window.removeEventListener("look-now", done);
    };
  });
}

function notify(question: Question): void {
  const words = question.tool
    ? inWords(question.tool, parsed(question.args_json ?? ""), "waiting")
    : { verb: question.message, about: "" };
  const shown = new Notification("Deep Agent needs you", {
    body: oneLine(`${question.asked_by.at(-1) ?? "An agent"}: ${words.verb} ${words.about}`, 200),
    tag: question.id,
  });
  shown.onclick = () => {
    window.focus();
    location.hash = `#inbox/${question.id}`;
    shown.close();
  };
}
