import type { VNode } from "preact";

// Drawn on 16 × 16, in lines.
const PATHS = {
  inbox: "M2 9h3.5l1 2h3l1-2H14M3.2 3.5h9.6L14 9v3.5H2V9z",
  threads: "M2.5 3.5h11v7h-6l-3 2.5v-2.5h-2z",
  plus: "M8 3v10M3 8h10",
  check: "M3 8.5l3.2 3L13 4.5",
  copy: "M5.5 5.5h7v8h-7zM10.5 5.5v-3h-7v8h2",
  cross: "M4 4l8 8M12 4l-8 8",
  right: "M6 3.5L10.5 8 6 12.5",
  down: "M3.5 6L8 10.5 12.5 6",
  edit: "M3 13l.7-2.8L10.5 3.4l2.1 2.1-6.8 6.8zM9.3 4.6l2.1 2.1",
  file: "M4 2.5h5l3 3v8H4zM9 2.5v3h3",
  folder: "M2 4h4.2l1.3 1.5H14V13H2z",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.3 10.3L14 14",
  terminal: "M2 3h12v10H2zM4.5 6l2 2-2 2M8.5 10.5h3",
  agent: "M8 7.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM3 13.5c.4-2.6 2.3-4 5-4s4.6 1.4 5 4",
  tool: "M9.6 3.2a3.2 3.2 0 0 0-3.9 4.1L2.6 10.4a1.6 1.6 0 0 0 0 2.3l.7.7a1.6 1.6 0 0 0 2.3 0l3.1-3.1a3.2 3.2 0 0 0 4.1-3.9L10.6 8.6 8.4 8 7.6 5.6z",
  todo: "M2.5 4.5l1 1 2-2M2.5 10.5l1 1 2-2M8 4.5h5.5M8 10.5h5.5",
  book: "M3 3h4a1 1 0 0 1 1 1v9a1 1 0 0 0-1-1H3zM13 3H9a1 1 0 0 0-1 1v9a1 1 0 0 1 1-1h4z",
  globe: "M8 13.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11zM2.5 8h11M8 2.5c3 3 3 8 0 11-3-3-3-8 0-11z",
  note: "M8 13.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11zM8 7.5V11M8 5v.3",
  warn: "M8 2.5l6 11H2zM8 6.5v3.2M8 11.5v.3",
  question: "M8 13.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11zM6.3 6.5C6.3 5.4 7 5 8 5s1.7.6 1.7 1.5S8 7.8 8 8.9M8 11v.2",
  stop: "M4 4h8v8H4z",
  play: "M5 3.5l7 4.5-7 4.5z",
  back: "M9.5 3.5L5 8l4.5 4.5",
  undo: "M5.5 3L2.5 6l3 3M2.5 6H10a3.5 3.5 0 0 1 0 7H6",
  fork: "M4.5 2.5v4.2A2.3 2.3 0 0 0 6.8 9h2.4a2.3 2.3 0 0 0 2.3-2.3V2.5M8 9v4.5",
  trash: "M3 4.5h10M6 4.5v-2h4v2M4.2 4.5l.6 9h6.4l.6-9",
  send: "M2.5 8L13.5 3l-3 10.5-2.8-4z",
  sun: "M8 10.8a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.6zM8 1.8v1.4M8 12.8v1.4M1.8 8h1.4M12.8 8h1.4M3.6 3.6l1 1M11.4 11.4l1 1M3.6 12.4l1-1M11.4 4.6l1-1",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  clock: "M8 13.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11zM8 5v3l2 1.5",
  server: "M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5v.1M5 11v.1",
  bell: "M4 11V7a4 4 0 0 1 8 0v4l1 1H3zM7 13.8h2",
  exit: "M9.5 3H3v10h6.5M7 8h7M11.5 5.5L14 8l-2.5 2.5",
  more: "M3.5 8h.1M8 8h.1M12.5 8h.1",
  download: "M8 2.5v7.5M4.8 7L8 10.2 11.2 7M3 13.5h10",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }): VNode {
  return (
    <svg class="svg" width="16" height="16" viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
