// The tour with the TypeScript SDK: node tour.mjs NODE_MODULES v1|v2|v2-modern TARGET
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [packages, version, json] = process.argv.slice(2);
const target = JSON.parse(json);
const found = createRequire(join(packages, "here.js"));
const load = (name) => import(pathToFileURL(found.resolve(name)).href);

async function sdk() {
  if (version === "v1") {
    const base = "@modelcontextprotocol/sdk";
    const { ElicitRequestSchema } = await load(`${base}/types.js`);
    return {
      ...(await load(`${base}/client/index.js`)),
      ...(await load(`${base}/client/stdio.js`)),
      ...(await load(`${base}/client/streamableHttp.js`)),
      ...(await load(`${base}/client/sse.js`)),
      elicitation: ElicitRequestSchema,
    };
  }
  const base = "@modelcontextprotocol/client";
  return { ...(await load(base)), ...(await load(`${base}/stdio`)), elicitation: "elicitation/create" };
}

const { Client, StdioClientTransport, StreamableHTTPClientTransport, SSEClientTransport, elicitation } =
  await sdk();

function transport() {
  if (target.transport === "stdio") return new StdioClientTransport({ ...target, stderr: "inherit" });
  const url = new URL(target.url);
  return target.transport === "sse" ? new SSEClientTransport(url) : new StreamableHTTPClientTransport(url);
}

const asked = [];
const progress = [];
const negotiation = version === "v2-modern" ? { mode: { pin: "2026-07-28" } } : { mode: "legacy" };
const client = new Client(
  { name: "tour", version: "1" },
  { capabilities: { elicitation: { form: {} } }, versionNegotiation: negotiation },
);
client.setRequestHandler(elicitation, (request) => {
  asked.push(request.params);
  return { action: "accept", content: { decision: "approve" } };
});
await client.connect(transport());

async function call(name, args, options) {
  const params = { name, arguments: args };
  return version === "v1"
    ? await client.callTool(params, undefined, options)
    : await client.callTool(params, options);
}

const listed = await call("write_todos", { todos: [{ content: "look at it", status: "in_progress" }] });
const { thread_id } = listed.structuredContent;
await call("write_file", { thread_id, path: "/tour.txt", content: "a line of the tour\n" });
const read = await call("read_file", { thread_id, path: "/tour.txt" });
const delegated = await call(
  "task",
  { thread_id, goal: "write a note" },
  { onprogress: (one) => progress.push(one.message ?? "") },
);
const resource = await client.readResource({ uri: `thread://${thread_id}/todos` });
const prompt = await client.getPrompt({ name: "greeting" });
const wrong = await call("read_file", { thread_id, path: "/nowhere" });
const approved = await call("task", { goal: "change the note" });

const seen = {
  server: client.getServerVersion().name,
  tools: (await client.listTools()).tools.map((one) => one.name),
  thread_id,
  todos: listed.structuredContent,
  read: read.content[0].text,
  delegated: delegated.structuredContent,
  progress,
  resource: resource.contents[0].text,
  prompt: prompt.messages[0].content.text,
  error: wrong.isError ? wrong.content[0].text : null,
  asked,
  approved: approved.structuredContent,
};
await client.close();
console.log(JSON.stringify(seen));
