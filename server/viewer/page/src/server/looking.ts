// Staying up to date: looking again and again, and what to do when that fails.

import { signal } from "@preact/signals";
import { Failure } from "./mcp";

const RETRY_SECONDS = [1, 2, 4, 8, 10];

/** What stands in the way right now. `rest` is not read aloud again and again. */
export interface Trouble {
  text: string;
  rest?: string;
  label?: string;
  act?: () => void;
}

export const trouble = signal<Trouble | null>(null);
/** Since when the server does not answer, or 0. */
export const goneSince = signal(0);
/** Why a token is needed. */
export const tokenAsked = signal<Failure | null>(null);

// A frame that was scrolled away is not `hidden`.
let inView = true;

export function watchSight(): void {
  new IntersectionObserver((seen) => {
    inView = seen.at(-1)?.isIntersecting ?? true;
    lookNow();
  }).observe(document.body);
  document.addEventListener("visibilitychange", lookNow);
  window.addEventListener("online", lookNow);
}

export function isSeen(): boolean {
  return !document.hidden && inView;
}

/** Have all that look do so at once. */
export function lookNow(): void {
  window.dispatchEvent(new Event("look-now"));
}

/** Wait, at most until `lookNow` or `signal`; a page that nobody sees waits until somebody does. */
export async function pause(seconds: number, signal: AbortSignal): Promise<void> {
  await heard(signal, (done) => {
    const timer = setTimeout(done, seconds * 1000);
    window.addEventListener("look-now", done);
    return () => {
      clearTimeout(timer);
      window.removeEventListener("look-now", done);
    };
  });
  await inSight(signal);
}

async function inSight(signal: AbortSignal): Promise<void> {
  while (!isSeen())
    await heard(signal, (done) => {
      window.addEventListener("look-now", done);
      return () => window.removeEventListener("look-now", done);
    });
}

export function heard(
  signal: AbortSignal,
  listen: (done: () => void) => () => void,
): Promise<void> {
  return new Promise((resolve, reject) => {
    let stop = () => {};
    const end = () => {
      stop();
      signal.removeEventListener("abort", aborted);
    };
    const aborted = () => {
      end();
      reject(signal.reason as Error);
    };
    if (signal.aborted) return reject(signal.reason as Error);
    signal.addEventListener("abort", aborted);
    stop = listen(() => {
      end();
      resolve();
    });
  });
}

/** Do `look` again and again as it says, until it returns null; tell of what stands in the way. */
export async function keepLooking(
  look: () => Promise<number | null>,
  signal: AbortSignal,
): Promise<void> {
  let failed = 0;
  while (!signal.aborted) {
    try {
      const seconds = await look();
      failed = 0;
      goneSince.value = 0;
      if (!signal.aborted) trouble.value = null;
      if (seconds === null) return;
      await pause(seconds, signal);
    } catch (failure) {
      if (signal.aborted) return;
      try {
        await overcome(failure, failed++, signal);
      } catch (reason) {
        if (!signal.aborted) throw reason;
      }
    }
  }
}

async function overcome(failure: unknown, failed: number, signal: AbortSignal): Promise<void> {
  if (!(failure instanceof Failure)) {
    trouble.value = {
      text: `This page has failed (${String(failure)}). Reload it; runs do not depend on it.`,
    };
    throw failure;
  }
  if (failure.kind === "token") {
    tokenAsked.value = failure;
    return heard(signal, () => () => {});
  }
  if (failure.kind !== "refused") return retryLater(failure, failed, signal);
  return heard(signal, (done) => {
    trouble.value = { text: failure.message, label: "Try again", act: done };
    return () => {};
  });
}

async function retryLater(failure: Failure, failed: number, signal: AbortSignal): Promise<void> {
  const seconds = failure.after || RETRY_SECONDS[Math.min(failed, RETRY_SECONDS.length - 1)]!;
  const gone = failure.kind === "gone";
  if (gone) goneSince.value ||= Date.now();
  const advice = gone
    ? " Its runs go on, or continue when it starts again. You can still read this page."
    : "";
  const since = gone ? ` Away since ${new Date(goneSince.value).toLocaleTimeString()}.` : "";
  await heard(signal, (done) => {
    trouble.value = {
      text: failure.message,
      rest: ` Trying again in ${seconds} s.${since}${advice}`,
      label: "Try now",
      act: done,
    };
    const timer = setTimeout(done, seconds * 1000);
    return () => clearTimeout(timer);
  });
  await inSight(signal);
}
