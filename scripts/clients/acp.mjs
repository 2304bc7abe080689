// Drives `aye acp` with the official ACP client, and prints what it says.
//
//   npm install --prefix /tmp/acp @agentclientprotocol/sdk@2.4.0
//   cp scripts/clients/acp.mjs /tmp/acp/ && node /tmp/acp/acp.mjs aye FOLDER "a prompt" [allow|deny|cancel]
//
// The exit status is 0 when the prompt ended, and 1 when the client complained.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [program, cwd, prompt, answer = "allow"] = process.argv.slice(2);
if (!prompt) {
  console.error("usage: node acp.mjs PROGRAM FOLDER PROMPT [allow|deny|cancel]");
  process.exit(2);
}
const child = spawn(program, ["acp"], { stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
const { agent, client } = acp.methods;
const kinds = { allow: "allow_once", deny: "reject_once" };
let agents;

const app = acp
  .client({ name: "aye-check" })
  .onNotification(client.session.update, ({ params }) => {
    const { sessionUpdate, ...update } = params.update;
    const text = update.content?.text ?? JSON.stringify(update);
    console.log(`${sessionUpdate}: ${text.slice(0, 200)}`);
  })
  .onRequest(client.session.requestPermission, async ({ params }) => {
    console.log(`question: ${params.toolCall.title} [${params.options.map((option) => option.name).join(" | ")}]`);
    const option = params.options.find((option) => option.kind === kinds[answer]);
    if (option) return { outcome: { outcome: "selected", optionId: option.optionId } };
    await agents.notify(agent.session.cancel, { sessionId: params.sessionId });
    return { outcome: { outcome: "cancelled" } };
  });

try {
  await app.connectWith(stream, async (context) => {
    agents = context;
    const capabilities = { fs: { readTextFile: false, writeTextFile: false }, terminal: false };
    const hello = await context.request(agent.initialize, { protocolVersion: 1, clientCapabilities: capabilities });
    console.log(`agent: ${hello.agentInfo.name} ${hello.agentInfo.version}, protocol ${hello.protocolVersion}`);
    const { sessionId, modes } = await context.request(agent.session.new, { cwd, mcpServers: [] });
    console.log(`session: ${sessionId}, mode ${modes.currentModeId}`);
    const ended = await context.request(agent.session.prompt, {
      sessionId,
      prompt: [{ type: "text", text: prompt }],
    });
    console.log(`stopped: ${ended.stopReason}`);
    const { sessions } = await context.request(agent.session.list, { cwd });
    console.log(`listed: ${sessions.map((session) => session.title).join(", ")}`);
    await context.request(agent.session.load, { sessionId, cwd, mcpServers: [] });
    console.log("loaded");
  });
} catch (error) {
  console.error(error);
  process.exitCode = 1;
} finally {
  child.stdin.end();
  child.kill();
}
