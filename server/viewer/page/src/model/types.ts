// What the server answers, as far as the page uses it.

export interface Me {
  principal: string;
  scopes: string[];
  server: { name: string; version: string };
  agents: { name: string; description: string }[];
  model: string | null;
  root: string | null;
  execute: string;
  replicas?: boolean;
}

export interface FilePreview {
  kind: "file";
  path: string;
  exists?: boolean | null;
  diff_cut?: boolean;
  before: string | null;
  after: string | null;
  diff: string;
  added: number;
  removed: number;
  too_large?: boolean;
  binary?: boolean;
  problem?: string | null;
}
export interface CommandPreview {
  kind: "command";
  command: string;
  cwd: string;
  timeout?: number | null;
  sandbox: { kind: string; network?: boolean; writes?: string[]; about?: string };
}

/** A question of a run. `args_json`: the arguments as the server has them, or null if too long. */
export interface Question {
  id: string;
  run_id: string;
  thread_id: string;
  title?: string;
  asked_by: string[];
  path?: string[];
  since?: string;
  message: string;
  rule?: string | null;
  why?: string;
  tool?: string | null;
  args_json?: string | null;
  args_chars?: number;
  decisions: string[];
  answer_schema?: Schema | null;
  tool_about?: { description?: string; parameters?: Schema } | null;
  preview?: FilePreview | CommandPreview | null;
  digest?: string;
  principal?: string;
  /** Whether this is the question as its own resource shows it. */
  whole?: boolean;
}

export interface Schema {
  type?: string;
  title?: string;
  description?: string;
  enum?: unknown[];
  properties?: Record<string, Schema>;
  required?: string[];
}

export interface Inbox {
  total: number;
  version: string;
  next: string | null;
  runs_working?: number;
  questions: Question[];
}

export interface Usage {
  input_tokens?: number;
  output_tokens?: number;
  cache_read_tokens?: number;
  cache_write_tokens?: number;
  [name: string]: number | undefined;
}
export interface LedgerLine {
  agent: string;
  model: string;
  calls: number;
  usage: Usage;
  cost?: number | null;
}
export interface RunUsage {
  model_calls?: number;
  tool_calls?: number;
  usage?: Usage;
  cost?: number;
  seconds?: number;
  unpriced_calls?: number;
  ledger?: LedgerLine[];
}
export interface RunFacts {
  run_id: string;
  kind?: string;
  agent?: string;
  status: string;
  goal?: string;
  answer?: string | null;
  reason?: string | null;
  created?: string;
  updated?: string;
  usage?: RunUsage;
}
export interface Todo {
  content: string;
  status: string;
}
export interface ThreadRow {
  thread_id: string;
  title: string;
  status: string;
  agent?: string | null;
  created?: string;
  updated: string;
  seconds?: number | null;
  cost?: number | null;
  unpriced?: number;
  tokens?: number;
  open_questions?: number;
  last_run?: string | null;
  answer?: string | null;
  reason?: string | null;
  principal?: string | null;
  match?: string | null;
}
export interface Overview {
  thread_id: string;
  title: string;
  status: string;
  created?: string;
  updated?: string;
  cost?: number;
  tokens?: number;
  unpriced?: number;
  seconds?: number;
  runs: RunFacts[];
  costs?: LedgerLine[];
  todos: Todo[];
  checkpoint_id?: string | null;
  open_questions: Question[];
}

export interface StepCall {
  call_id: string;
  name: string;
  args_json: string;
  invalid?: string | null;
  file?: FileLines | null;
  subagent_ns?: string | null;
}
/** `removed` is null while it is not known what a call replaces; `created` is known afterwards. */
export interface FileLines {
  path: string;
  added: number;
  removed?: number | null;
  created?: boolean | null;
}
export interface Step {
  key: string;
  n: number;
  time?: string;
  checkpoint_id?: string | null;
  ns?: string;
  agent?: string | null;
  run_id?: string;
  kind: "user" | "notice" | "text" | "tool";
  text?: string;
  thinking?: string;
  source?: string | null;
  model?: string;
  usage?: Usage | null;
  stop?: string;
  calls?: StepCall[];
  call_id?: string;
  name?: string;
  status?: string;
  /** Of a file tool's result: what it changed. */
  file?: FileLines | null;
  images?: { mime: string; data?: string | null; bytes?: number }[];
  cut?: Record<string, number>;
}
export interface Writing {
  path: string[];
  text: string;
  thinking?: string;
  since?: string;
}
export interface StepPage {
  steps: Step[];
  before: string | null;
  after: string;
  more?: boolean;
  /** Whether what was read before is out of date: the thread was rewound. */
  reset?: boolean;
  doing?: string | null;
  working?: Writing[];
}
