// What long calls need, with the TypeScript SDK: node features.mjs NODE_MODULES v1|v2|v2-modern TARGET
import { connected } from "./sdk.mjs";

const [packages, version, json] = process.argv.slice(2);
const target = JSON.parse(json);
const modern = version === "v2-modern";

let cuts = 0;
const resumed = [];

// Cuts the first answer to a call off after its first event, as a proxy does that gives up.
async function cutting(url, init) {
  const lastEventId = new Headers(init?.headers).get("last-event-id");
  if (lastEventId) resumed.push(lastEventId);
  const response = await fetch(url, init);
  const isCall = init?.method === "POST" && String(init.body).includes('"a moment, cut off"');
  if (!isCall || cuts++ > 0 || !response.body) return response;
  const reader = response.body.getReader();
  const body = new ReadableStream({
    async start(controller) {
      const { value } = await reader.read();
      if (value) controller.enqueue(value);
      await reader.cancel();
      controller.close();
    },
  });
  return new Response(body, { status: response.status, headers: response.headers });
}

const updates = [];
let heard;
const changed = new Promise((resolve) => (heard = resolve));
const client = await connected(packages, version, target, "sixty", {
  fetch: target.transport === "http" && !modern ? cutting : undefined,
  onUpdate: (uri) => {
    updates.push(uri);
    heard();
  },
});

async function call(name, args, options) {
  const params = { name, arguments: args };
  return version === "v1"
    ? await client.callTool(params, undefined, options)
    : await client.callTool(params, options);
}

// A client that gives up after five seconds, and a run that takes longer.
const limits = { timeout: 5_000 };
let run = (await call("task", { goal: "six seconds", thread_id: "new" }, limits)).structuredContent;
const statuses = [run.status];
while (run.status === "running") {
  run = (await call("wait", { run_id: run.run_id }, limits)).structuredContent;
  statuses.push(run.status);
}

const watched = "threads://recent";
if (modern) await client.listen({ resourceSubscriptions: [watched] });
else await client.subscribeResource({ uri: watched });
await call("write_todos", { todos: [{ content: "be seen" }], thread_id: "new" });
await changed;

const cut = target.transport === "http" && !modern
  ? (await call("task", { goal: "a moment, cut off", thread_id: "new" })).structuredContent
  : null;

const task = [];
if (version === "v1") {
  const params = { name: "task", arguments: { goal: "a moment", thread_id: "new" } };
  for await (const one of client.experimental.tasks.callToolStream(params, undefined, { task: { ttl: 60_000 } }))
    task.push(one.type === "result" ? one.result.structuredContent : one.type);
}

await client.close();
console.log(JSON.stringify({ statuses, answer: run.answer, updates, cut, resumed, task }));
