// The tour with the TypeScript SDK: node tour.mjs NODE_MODULES v1|v2|v2-modern TARGET
import { connected } from "./sdk.mjs";

const [packages, version, json] = process.argv.slice(2);
const asked = [];
const progress = [];
const client = await connected(packages, version, JSON.parse(json), "tour", { asked });

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
const approved = await call("task", { goal: "change the note", thread_id: "new" });

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
