// Decisions are for what was there when one reached for the button, not for what came under it.

import { signal } from "@preact/signals";

export const SETTLE_MS = 400;

let timer = 0;
/** Whether what is there has been there for a moment. */
export const settled = signal(true);

/** Let nothing be decided for a moment: something else has come. */
export function unsettle(): void {
  const buttons = () => document.querySelectorAll(".questions button, .inbox-one button");
  clearTimeout(timer);
  settled.value = false;
  for (const one of buttons()) one.setAttribute("aria-disabled", "true");
  timer = window.setTimeout(() => {
    timer = 0;
    settled.value = true;
    for (const one of buttons()) one.removeAttribute("aria-disabled");
  }, SETTLE_MS);
}

export function isSettled(): boolean {
  return timer === 0;
}

/** Stop a click that came too fast to be meant for what is there now. */
export function holdHasty(event: MouseEvent): void {
  const target = event.target as Element | null;
  if ((event.detail > 1 || !isSettled()) && target?.closest("button")) {
    event.stopPropagation();
    event.preventDefault();
  }
}
