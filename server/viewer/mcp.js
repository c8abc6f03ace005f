// The two ways to the server: its own endpoint, or the host that shows this page in a frame. Both
// have `call(name, args, seconds, signal)` and `read(uri, signal)`, and fail with a `Failure`.

const PROTOCOL = "2026-07-28";
const APPS_PROTOCOL = "2026-01-26";
const CLIENT = { name: "deep-agent-viewer", title: "Deep Agent", version: "1" };
const GRACE_SECONDS = 15;
const HOST_GRACE_SECONDS = 300; // it may ask a person before it lets a call through
const TOKEN_KEY = "deep-agent-token";

/**
 * A call that came to nothing. `kind`: "gone" (nobody answers), "token" (none, or a wrong one),
 * "busy" (too many calls), "refused" (the answer is no, and would be again). `after`: seconds to
 * wait; `issued`: whether an authorization server hands out tokens.
 */
class Failure extends Error {
  constructor(kind, message, { after = 0, issued = false } = {}) {
    super(message);
    this.kind = kind;
    this.after = after;
    this.issued = issued;
  }
}

/** The server this page comes from. */
class HttpServer {
  /** How long a look at a run may block, in seconds. */
  patience = 1;
  canCall = true;
  canRead = true;

  constructor(url) {
    this.url = url;
    this.ids = 0;
    this.token = stored(() => sessionStorage.getItem(TOKEN_KEY)) || "";
  }

  keepToken(token) {
    this.token = token;
    stored(() =>
      token ? sessionStorage.setItem(TOKEN_KEY, token) : sessionStorage.removeItem(TOKEN_KEY),
    );
  }

  call(name, args, seconds, signal) {
    return this.request("tools/call", { name, arguments: args }, name, seconds, signal);
  }

  read(uri, signal) {
    return this.request("resources/read", { uri }, uri, 0, signal);
  }

  async request(method, params, name, seconds, signal) {
    const id = ++this.ids;
    const meta = {
      "io.modelcontextprotocol/protocolVersion": PROTOCOL,
      "io.modelcontextprotocol/clientInfo": CLIENT,
      "io.modelcontextprotocol/clientCapabilities": {},
    };
    const headers = {
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": PROTOCOL,
      "Mcp-Method": method,
      "Mcp-Name": name,
    };
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    const body = jsonText({ jsonrpc: "2.0", id, method, params: { ...params, _meta: meta } });
    const late = AbortSignal.timeout((seconds + GRACE_SECONDS) * 1000);
    let response, text;
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

function answerOf(response, text, id, hadToken) {
  if (response.status === 401)
    throw new Failure(
      "token",
      hadToken
        ? "The server does not accept this token: it is mistyped, expired or revoked."
        : "This server asks for a token.",
      { issued: /resource_metadata=/.test(response.headers.get("WWW-Authenticate")) },
    );
  if (response.status === 429) {
    const after = Number(response.headers.get("Retry-After"));
    throw new Failure("busy", "Too many requests.", { after });
  }
  let message;
  try {
    message = messageIn(text, id);
  } catch {
    message = null;
  }
  if (message?.result) return message.result;
  if (message?.error)
    throw new Failure("refused", String(message.error.message ?? message.error_description));
  if (response.status >= 500)
    throw new Failure("gone", `The server is not ready (HTTP ${response.status}).`);
  throw new Failure("refused", `The server refused the call (HTTP ${response.status}).`);
}

/** Return the answer in a body of JSON, or of server-sent events. */
function messageIn(text, id) {
  if (text.startsWith("{")) return JSON.parse(text);
  const data = text.split(/\r?\n\r?\n/).map((event) =>
    event
      .split(/\r?\n/)
      .filter((line) => line.startsWith("data:"))
      .map((line) => line.slice(5))
      .join("\n"),
  );
  return data
    .filter(Boolean)
    .map((one) => JSON.parse(one))
    .find((one) => one.id === id);
}

function stored(use) {
  try {
    return use();
  } catch {
    return null; // storage is switched off: the token lasts as long as the page
  }
}

/** A host of MCP Apps (SEP-1865), which passes calls on to the server. */
class HostServer {
  patience = 0; // a call that blocks would keep others of the host waiting

  /** `on`: what to do at "tool-input", "tool-result", "tool-cancelled", "context", "teardown". */
  constructor(host, on) {
    this.host = host;
    this.on = on;
    this.ids = 0;
    this.open = new Map();
    this.canCall = false;
    this.canRead = false;
    window.addEventListener("message", (event) => this.hear(event));
  }

  async connect() {
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

  async call(name, args, seconds, signal) {
    const patience = seconds + HOST_GRACE_SECONDS;
    return this.ask("tools/call", { name, arguments: plainly(args) }, patience, signal);
  }

  read(uri, signal) {
    return this.ask("resources/read", { uri }, HOST_GRACE_SECONDS, signal);
  }

  tell(method, params) {
    this.post({ method, params });
  }

  post(message) {
    // A frame in a sandbox cannot know its host's origin; the host sees these calls anyway.
    this.host.postMessage({ jsonrpc: "2.0", ...message }, "*");
  }

  ask(method, params, seconds, signal) {
    const id = ++this.ids;
    return new Promise((resolve, reject) => {
      const end = (settle, value) => {
        this.open.delete(id);
        clearTimeout(late);
        signal.removeEventListener("abort", aborted);
        settle(value);
      };
      const aborted = () => end(reject, signal.reason);
      const late = setTimeout(() => {
        const text = "The application that shows this page does not answer.";
        end(reject, new Failure("gone", text));
      }, seconds * 1000);
      if (signal.aborted) return aborted();
      signal.addEventListener("abort", aborted);
      this.open.set(id, {
        done: (value) => end(resolve, value),
        failed: (why) => end(reject, why),
      });
      this.post({ id, method, params });
    });
  }

  hear({ source, data }) {
    if (source !== this.host || data?.jsonrpc !== "2.0") return;
    if (typeof data.method === "string") {
      if (data.id === undefined) this.notice(data.method, data.params ?? {});
      else this.serve(data);
      return;
    }
    const asked = this.open.get(data.id);
    if (!asked) return;
    if (data.error) asked.failed(new Failure("refused", String(data.error.message)));
    else asked.done(data.result ?? {});
  }

  notice(method, params) {
    const what = method.replace("ui/notifications/", "");
    if (what === "host-context-changed") this.on.context(params);
    else if (["tool-input", "tool-result", "tool-cancelled"].includes(what)) this.on[what](params);
  }

  serve({ id, method }) {
    if (method === "ui/resource-teardown") this.on.teardown();
    if (method === "ping" || method === "ui/resource-teardown") this.post({ id, result: {} });
    else this.post({ id, error: { code: -32601, message: `Method not found: ${method}` } });
  }
}

/** Call a tool; return its structured content, also of a run that failed. */
async function toolData(server, name, args, seconds, signal) {
  const result = await server.call(name, args, seconds, signal);
  const data = result.structuredContent ?? {};
  if (result.isError && !data.run_id) throw new Failure("refused", textOf(result));
  return data;
}

function textOf(result) {
  const blocks = Array.isArray(result.content) ? result.content : [];
  return blocks
    .filter((one) => one.type === "text")
    .map((one) => one.text)
    .join("\n");
}
