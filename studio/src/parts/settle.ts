// Decisions are for what was there when one reached for the button, not for what came under it.

export const SETTLE_MS = 400;

let settledAt = 0;

/** Let nothing be decided for a moment: something else has come. */
export function unsettle(): void {
  settledAt = performance.now() + SETTLE_MS;
}

export function isSettled(): boolean {
  return performance.now() >= settledAt;
}

/** Stop a click that came too fast to be meant for what is there now. */
export function holdHasty(event: MouseEvent): void {
  const target = event.target as Element | null;
  if ((event.detail > 1 || !isSettled()) && target?.closest("button, summary")) {
    event.stopPropagation();
    event.preventDefault();
  }
}
