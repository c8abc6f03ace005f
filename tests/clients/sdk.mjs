// Connects with the TypeScript SDK, version 1 or 2, in either protocol era.
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

async function loaded(packages, version) {
  const found = createRequire(join(packages, "here.js"));
  const load = (name) => import(pathToFileURL(found.resolve(name)).href);
  if (version === "v1") {
    const base = "@modelcontextprotocol/sdk";
    const types = await load(`${base}/types.js`);
    return {
      ...(await load(`${base}/client/index.js`)),
      ...(await load(`${base}/client/stdio.js`)),
      ...(await load(`${base}/client/streamableHttp.js`)),
      ...(await load(`${base}/client/sse.js`)),
      elicitation: types.ElicitRequestSchema,
      updated: types.ResourceUpdatedNotificationSchema,
    };
  }
  const base = "@modelcontextprotocol/client";
  return {
    ...(await load(base)),
    ...(await load(`${base}/stdio`)),
    elicitation: "elicitation/create",
    updated: "notifications/resources/updated",
  };
}

// asked: receives the forms, which are accepted; without it the client declares none.
export async function connected(packages, version, target, name, { asked, fetch, onUpdate } = {}) {
  const sdk = await loaded(packages, version);
  const negotiation = version === "v2-modern" ? { mode: { pin: "2026-07-28" } } : { mode: "legacy" };
  const capabilities = asked ? { elicitation: { form: {} } } : {};
  const client = new sdk.Client({ name, version: "1" }, { capabilities, versionNegotiation: negotiation });
  if (asked)
    client.setRequestHandler(sdk.elicitation, (request) => {
      asked.push(request.params);
      return { action: "accept", content: { decision: "approve" } };
    });
  if (onUpdate) client.setNotificationHandler(sdk.updated, (one) => onUpdate(one.params.uri));
  await client.connect(transport(sdk, target, fetch));
  return client;
}

function transport(sdk, target, fetch) {
  if (target.transport === "stdio") return new sdk.StdioClientTransport({ ...target, stderr: "inherit" });
  const url = new URL(target.url);
  if (target.transport === "sse") return new sdk.SSEClientTransport(url);
  return new sdk.StreamableHTTPClientTransport(url, fetch ? { fetch } : undefined);
}
