// The two ways to the server: its own endpoint, or the host that shows this page in a frame.

import { Inexact, jsonText, plainly } from "../lib/exact";

const PROTOCOL = "2026-07-28";
const APPS_PROTOCOL = "2026-01-26";
export const CLIENT = { name: "deep-agent-studio", title: "Deep Agent", version: "1" };
const GRACE_SECONDS = 15;
const HOST_GRACE_SECONDS = 300; // it may ask a person before it lets a call through
const TOKEN_KEY = "deep-agent-token";

export type Args = Record<string, unknown>;
// biome-ignore lint: what a server answers is checked where it is used
export type Data = Record<string, any>;

export interface ToolResult {
  structuredContent?: Data;
  content?: { type: string; text?: string }[];
  isError?: boolean;
  taskId?: string;
}
export interface ReadResult {
  contents?: { uri: string; mimeType?: string; text?: string; blob?: string }[];
}

/**
 * A call that came to nothing. `kind`: "gone" (nobody answers), "token" (none, or a wrong one),
 * "busy" (too many calls), "refused" (the answer is no, and would be again). `after`: seconds to
 * wait; `issued`: whether an authorization server hands out tokens.
 */
export class Failure extends Error {
  readonly after: number;
  readonly issued: boolean;
  constructor(
    readonly kind: "gone" | "token" | "busy" | "refused",
    message: string,
    { after = 0, issued = false } = {},
  ) {
    super(message);
    this.after = after;
    this.issued = issued;
  }
}

export interface Server {
  /** How long a look at a run may block, in seconds. */
  readonly patience: number;
  readonly canCall: boolean;
  readonly canRead: boolean;
  /** Whether this is a chat application that shows the page in a frame. */
  readonly hosted: boolean;
  call(name: string, args: Args, seconds: number, signal: AbortSignal): Promise<ToolResult>;
  read(uri: string, signal: AbortSignal): Promise<ReadResult>;
}

/** The server this page comes from. */
export class HttpServer implements Server {
  readonly patience = 1;
  readonly canCall = true;
  readonly canRead = true;
  readonly hosted = false;
  token: string;
  private ids = 0;

  constructor(private readonly url: string) {
    this.token = stored(() => sessionStorage.getItem(TOKEN_KEY)) || "";
  }

  keepToken(token: string): void {
    this.token = token;
    stored(() =>
      token ? sessionStorage.setItem(TOKEN_KEY, token) : sessionStorage.removeItem(TOKEN_KEY),
    );
  }

  call(name: string, args: Args, seconds: number, signal: AbortSignal): Promise<ToolResult> {
    return this.request("tools/call", { name, arguments: args }, name, seconds, signal);
  }

  read(uri: string, signal: AbortSignal): Promise<ReadResult> {
    return this.request("resources/read", { uri }, uri, 0, signal);
  }

  /** Call a method of the server's own, which no model can reach. */
  method(name: string, params: Args, signal: AbortSignal): Promise<Data> {
    return this.request(name, params, "", 0, signal);
  }

  private async request(
    method: string,
    params: Args,
    name: string,
    seconds: number,
    signal: AbortSignal,
  ): Promise<Data> {
    const id = ++this.ids;
    const meta = {
      "io.modelcontextprotocol/protocolVersion": PROTOCOL,
      "io.modelcontextprotocol/clientInfo": CLIENT,
      "io.modelcontextprotocol/clientCapabilities": {},
    };
    const headers: Record<string, string> = {
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": PROTOCOL,
      "Mcp-Method": method,
      ...(name && { "Mcp-Name": headerText(name) }),
    };
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    const body = jsonText({ jsonrpc: "2.0", id, method, params: { ...params, _meta: meta } });
    const late = AbortSignal.timeout((seconds + GRACE_SECONDS) * 1000);
    let response: Response;
    let text: string;
    try {
      response = await fetch(this.url, {
        method: "POST",
        headers,
        body,
        cache: "no-store",
        signal: AbortSignal.any([signal, late]),
      });
      text = await response.text();
    } catch {
      signal.throwIfAborted();
      throw new Failure("gone", "The server does not answer.");
    }
    return answerOf(response, text, id, Boolean(this.token));
  }
}

/** Return a text as a header may carry it (SEP-2243): others than plain ones in base64. */
function headerText(text: string): string {
  if (/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(text) && !text.startsWith("=?base64?"))
    return text;
  const binary = String.fromCharCode(...new TextEncoder().encode(text));
  return `=?base64?${btoa(binary)}?=`;
}

function answerOf(response: Response, text: string, id: number, hadToken: boolean): Data {
  if (response.status === 401)
    throw new Failure(
      "token",
      hadToken
        ? "The server does not accept this token: it is mistyped, expired or revoked."
        : "This server asks for a token.",
      { issued: /resource_metadata=/.test(response.headers.get("WWW-Authenticate") ?? "") },
    );
  if (response.status === 429) {
    const after = Number(response.headers.get("Retry-After"));
    throw new Failure("busy", "Too many requests.", { after });
  }
  let message: Data | undefined;
  try {
    message = messageIn(text, id);
  } catch {
    message = undefined;
  }
  if (message?.result) return message.result as Data;
  if (message?.error)
    throw new Failure("refused", String(message.error.message ?? message.error_description));
  if (response.status >= 500)
    throw new Failure("gone", `The server is not ready (HTTP ${response.status}).`);
  throw new Failure("refused", `The server refused the call (HTTP ${response.status}).`);
}

/** Return the answer in a body of JSON, or of server-sent events. */
function messageIn(text: string, id: number): Data | undefined {
  if (text.startsWith("{")) return JSON.parse(text) as Data;
  return text
    .split(/\r?\n\r?\n/)
    .map((event) =>
      event
        .split(/\r?\n/)
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(5))
        .join("\n"),
    )
    .filter(Boolean)
    .map((one) => JSON.parse(one) as Data)
    .find((one) => one.id === id);
}

export function stored<T>(use: () => T): T | null {
  try {
    return use();
  } catch {
    return null; // storage is switched off: what is kept lasts as long as the page
  }
}

type Hearer = (params: Data) => void;

export interface HostEvents {
  context: Hearer;
  teardown: () => void;
  "tool-input": Hearer;
  "tool-result": Hearer;
  "tool-cancelled": Hearer;
}

interface Asked {
  done: (value: Data) => void;
  failed: (why: Error) => void;
}

/** A host of MCP Apps (SEP-1865), which passes calls on to the server. */
export class HostServer implements Server {
  readonly patience = 0; // a call that blocks would keep others of the host waiting
  readonly hosted = true;
  canCall = false;
  canRead = false;
  private ids = 0;
  private readonly open = new Map<unknown, Asked>();

  constructor(
    private readonly host: Window,
    private readonly on: HostEvents,
  ) {
    window.addEventListener("message", (event) => this.hear(event));
  }

  async connect(): Promise<void> {
    const signal = new AbortController().signal;
    const made = await this.ask(
      "ui/initialize",
      {
        protocolVersion: APPS_PROTOCOL,
        appInfo: CLIENT,
        appCapabilities: { availableDisplayModes: ["inline", "fullscreen"] },
      },
      GRACE_SECONDS,
      signal,
    );
    this.canCall = Boolean(made.hostCapabilities?.serverTools);
    this.canRead = Boolean(made.hostCapabilities?.serverResources);
    this.on.context(made.hostContext ?? {});
    this.tell("ui/notifications/initialized", {});
  }

  async call(
    name: string,
    args: Args,
    seconds: number,
    signal: AbortSignal,
  ): Promise<ToolResult> {
    const patience = seconds + HOST_GRACE_SECONDS;
    let plain: unknown;
    try {
      plain = plainly(args);
    } catch (problem) {
      if (problem instanceof Inexact) throw new Failure("refused", problem.message);
      throw problem;
    }
    return this.ask("tools/call", { name, arguments: plain }, patience, signal);
  }

  read(uri: string, signal: AbortSignal): Promise<ReadResult> {
    return this.ask("resources/read", { uri }, HOST_GRACE_SECONDS, signal);
  }

  tell(method: string, params: Args): void {
    this.post({ method, params });
  }

  private post(message: Args): void {
    // A frame in a sandbox cannot know its host's origin; the host sees these calls anyway.
    this.host.postMessage({ jsonrpc: "2.0", ...message }, "*");
  }

  private ask(method: string, params: Args, seconds: number, signal: AbortSignal): Promise<Data> {
    const id = ++this.ids;
    return new Promise((resolve, reject) => {
      const end = () => {
        this.open.delete(id);
        clearTimeout(late);
        signal.removeEventListener("abort", aborted);
      };
      const aborted = () => {
        end();
        reject(signal.reason as Error);
      };
      const late = setTimeout(() => {
        end();
        reject(new Failure("gone", "The application that shows this page does not answer."));
      }, seconds * 1000);
      if (signal.aborted) return aborted();
      signal.addEventListener("abort", aborted);
      this.open.set(id, {
        done: (value) => {
          end();
          resolve(value);
        },
        failed: (why) => {
          end();
          reject(why);
        },
      });
      this.post({ id, method, params });
    });
  }

  private hear({ source, data }: MessageEvent<Data | null>): void {
    if (source !== this.host || data?.jsonrpc !== "2.0") return;
    if (typeof data.method === "string") {
      if (data.id === undefined) this.notice(data.method, (data.params ?? {}) as Data);
      else this.serve(data);
      return;
    }
    const asked = this.open.get(data.id);
    if (!asked) return;
    if (data.error) asked.failed(new Failure("refused", String(data.error.message)));
    else asked.done((data.result ?? {}) as Data);
  }

  private notice(method: string, params: Data): void {
    const what = method.replace("ui/notifications/", "");
    if (what === "host-context-changed") this.on.context(params);
    else if (what === "tool-input" || what === "tool-result" || what === "tool-cancelled")
      this.on[what](params);
  }

  private serve({ id, method }: Data): void {
    if (method === "ui/resource-teardown") this.on.teardown();
    if (method === "ping" || method === "ui/resource-teardown") this.post({ id, result: {} });
    else this.post({ id, error: { code: -32601, message: `Method not found: ${method}` } });
  }
}

/** Call a tool; return its structured content, also of a run that failed. */
export async function toolData(
  server: Server,
  name: string,
  args: Args,
  seconds: number,
  signal: AbortSignal,
): Promise<Data> {
  const result = await server.call(name, args, seconds, signal);
  const data = result.structuredContent ?? {};
  if (result.isError && !data.run_id) throw new Failure("refused", textOf(result));
  return data;
}

/** Read a resource that is JSON. */
export async function readData(server: Server, uri: string, signal: AbortSignal): Promise<Data> {
  const read = await server.read(uri, signal);
  return JSON.parse(read.contents?.[0]?.text ?? "null") as Data;
}

export function textOf(result: ToolResult): string {
  const blocks = Array.isArray(result.content) ? result.content : [];
  return blocks
    .filter((one) => one.type === "text")
    .map((one) => one.text ?? "")
    .join("\n");
}
