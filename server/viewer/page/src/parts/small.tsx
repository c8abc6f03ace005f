// Small parts that many views use.

import { useSignal } from "@preact/signals";
import type { ComponentChild, VNode } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { STATUS_WORDS } from "../model/words";
import { ago, fullTime, shown } from "../lib/text";
import { now } from "../state";
import { Icon, type IconName } from "./icons";
import { isSettled } from "./settle";

export function Status({ status, live = false }: { status: string; live?: boolean }): VNode {
  return (
    <span class="status" data-status={status} role={live ? "status" : undefined}>
      {STATUS_WORDS[status] ?? shown(status, 40)}
    </span>
  );
}

export function Ago({ time }: { time: string | undefined }): VNode {
  return (
    <time dateTime={shown(time ?? "", 40)} title={fullTime(time)}>
      {ago(time, now.value)}
    </time>
  );
}

/** Return how long a thread has worked; what runs now has done so since its last step. */
export function worked(one: { status: string; seconds?: number | null; updated?: string }): number {
  const since = (now.value - Date.parse(one.updated ?? "")) / 1000;
  return (one.seconds ?? 0) + (one.status === "running" && since > 0 ? since : 0);
}

interface ActProps {
  label: ComponentChild;
  act: () => Promise<unknown> | unknown;
  style?: string;
  icon?: IconName;
  hint?: string;
  disabled?: boolean;
  title?: string;
}

/** A button that waits for what it does: two clicks are one. */
export function Act({ label, act, style = "", icon, hint, disabled, title }: ActProps): VNode {
  const busy = useSignal(false);
  const click = async () => {
    if (busy.value) return;
    busy.value = true;
    try {
      await act();
    } finally {
      busy.value = false;
    }
  };
  return (
    <button
      type="button"
      class={style || undefined}
      disabled={disabled || busy.value}
      onClick={click}
      title={title}
      data-key={hint}
    >
      {icon ? <Icon name={icon} /> : null}
      {label}
    </button>
  );
}

/** A button that asks once more before it does something. */
export function Twice({
  label,
  sure,
  back,
  act,
  icon,
  text,
}: {
  label: string;
  sure: string;
  back: string;
  act: () => Promise<unknown>;
  icon?: IconName;
  text?: ComponentChild;
}): VNode {
  const asked = useSignal(false);
  const place = useRef<HTMLSpanElement>(null);
  const wasAsked = useRef(false);
  useEffect(() => {
    // Not on the one that acts: a key that is held down would press it.
    if (asked.value) place.current?.querySelector<HTMLElement>("button:last-of-type")?.focus();
    else if (wasAsked.current) place.current?.querySelector<HTMLElement>("button")?.focus();
    wasAsked.current = asked.value;
  }, [asked.value]);
  const hold = (event: MouseEvent) => {
    if (event.detail > 1) event.stopPropagation(); // it was for the button before
  };
  const escape = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || !asked.value) return;
    event.stopPropagation();
    asked.value = false;
  };
  return (
    <span class="twice" ref={place} onClickCapture={hold} onKeyDown={escape}>
      {asked.value ? (
        <>
          {text ? <span>{text}</span> : null}
          <Act key="sure" label={sure} style="stop" act={act} />
          <button key="back" type="button" onClick={() => (asked.value = false)}>
            {back}
          </button>
        </>
      ) : (
        <button key="ask" type="button" onClick={() => (asked.value = true)}>
          {icon ? <Icon name={icon} /> : null}
          {label}
        </button>
      )}
    </span>
  );
}

export function Refused({ text }: { text: string }): VNode | null {
  return text ? (
    <p class="refused" role="alert">
      <Icon name="warn" />
      <span>{shown(text, 2_000)}</span>
    </p>
  ) : null;
}

export function Loading({ what = "Loading…" }: { what?: string }): VNode {
  return (
    <p class="quiet loading">
      <span class="dots" aria-hidden="true" />
      {what}
    </p>
  );
}

/** Whether a key press is a command of the page, and not part of what somebody writes. */
export function isCommand(event: KeyboardEvent): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || !isSettled()) return false;
  if (document.querySelector("dialog[open]")) return false;
  const target = event.target as Element | null;
  return !target?.closest("input, textarea, select, [contenteditable]");
}
