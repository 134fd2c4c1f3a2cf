// Works with an agent as an editor does, with the TypeScript SDK of ACP, and prints what came of it.
//
//     node acp_client.mjs DELTA SDK

import { spawn } from "node:child_process";
import path from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [program, sdk] = process.argv.slice(2);
const acp = await import(pathToFileURL(path.join(sdk, "dist/v1/stable/acp.js")));
const seen = { texts: [], permissions: [], statuses: [], loaded: 0 };

const agent = spawn(program, ["acp", "--agent", "agent"], { stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const { methods } = acp;
const cwd = path.resolve("work");

await acp
  .client({ name: "editor" })
  .onRequest(methods.client.session.requestPermission, ({ params }) => {
    seen.permissions.push(params.toolCall.title);
    return { outcome: { outcome: "selected", optionId: params.options[0].optionId } };
  })
  .onNotification(methods.client.session.update, ({ params: { update } }) => {
    seen.loaded += 1;
    if (update.sessionUpdate === "agent_message_chunk") seen.texts.push(update.content.text);
    if (update.status) seen.statuses.push(update.status);
  })
  .connectWith(stream, async (context) => {
    const clientCapabilities = { fs: { readTextFile: false, writeTextFile: false }, terminal: false };
    const opened = await context.request(methods.agent.initialize, { protocolVersion: 1, clientCapabilities });
    seen.version = opened.protocolVersion;
    const { sessionId } = await context.request(methods.agent.session.new, { cwd, mcpServers: [] });
    const prompt = async (text) =>
      (await context.request(methods.agent.session.prompt, { sessionId, prompt: [{ type: "text", text }] })).stopReason;
    // The agent asks a question; this editor shows no forms, so the next prompt is its answer.
    seen.stops = [await prompt("go"), await prompt("this")];
    seen.loaded = 0;
    await context.request(methods.agent.session.load, { sessionId, cwd, mcpServers: [] });
  });
agent.stdin.end();
console.log(JSON.stringify(seen));
