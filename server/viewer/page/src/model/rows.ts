// The rows of a conversation: what an agent said or did, and the agents that a call started.

import type { CallState } from "./words";
import type { FileLines, Step } from "./types";

export interface Agent {
  key: string;
  path: string[];
  name: string;
  task: string;
  state: CallState;
  rows: Row[];
  /** Which of the agents below the main one this is, for its colour. */
  number: number;
  call: Row | null;
}

export interface Row {
  key: string;
  kind: "user" | "notice" | "text" | "tool" | "note" | "writing";
  agent: Agent;
  time?: string;
  seconds?: number | null;
  /** Of a tool: its result. */
  text: string;
  thinking?: string;
  name: string;
  args?: unknown;
  argsText?: string;
  state: CallState;
  file?: FileLines | null;
  images?: Step["images"];
  agents: Agent[];
  cut?: Record<string, number>;
  step?: Step;
  /** Of a tool: the model's answer that calls it, if that has no row of its own. */
  answer?: Step;
  /** Counts up with every change: what is drawn is drawn anew. */
  version: number;
}

export interface Shown {
  row: Row;
  depth: number;
  key: string;
}
