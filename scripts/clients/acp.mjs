// Drives `aye acp` with the official ACP client, and prints what it says.
//
//   node acp.mjs aye FOLDER "a prompt" [allow|deny|cancel] [files]
//
// With `files` it is an editor that reads and writes files. The exit status is 0 when the prompt asked, ended as it should
// and can be loaded again, and 1 when something is wrong or the client complained.
import { spawn } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [program, cwd, prompt, answer = "allow", files] = process.argv.slice(2);
if (!prompt) {
  console.error("usage: node acp.mjs PROGRAM FOLDER PROMPT [allow|deny|cancel]");
  process.exit(2);
}
const child = spawn(program, ["acp"], { stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
const { agent, client } = acp.methods;
const kinds = { allow: "allow_once", deny: "reject_once" };
const expected = answer === "cancel" ? "cancelled" : "end_turn";
let agents;
let questions = 0;
let written = 0;

const app = acp
  .client({ name: "aye-check" })
  .onNotification(client.session.update, ({ params }) => {
    const { sessionUpdate, ...update } = params.update;
    const text = update.content?.text ?? JSON.stringify(update);
    console.log(`${sessionUpdate}: ${text.slice(0, 200)}`);
  })
  .onRequest(client.fs.readTextFile, async ({ params }) => ({ content: await readFile(params.path, "utf8") }))
  .onRequest(client.fs.writeTextFile, async ({ params }) => {
    console.log(`writes: ${params.path}`);
    written += 1;
    await writeFile(params.path, params.content);
    return {};
  })
  .onRequest(client.session.requestPermission, async ({ params }) => {
    questions += 1;
    console.log(`question: ${params.toolCall.title} [${params.options.map((option) => option.name).join(" | ")}]`);
    const option = params.options.find((option) => option.kind === kinds[answer]);
    if (option) return { outcome: { outcome: "selected", optionId: option.optionId } };
    await agents.notify(agent.session.cancel, { sessionId: params.sessionId });
    return { outcome: { outcome: "cancelled" } };
  });

try {
  await app.connectWith(stream, async (context) => {
    agents = context;
    const capabilities = { fs: { readTextFile: !!files, writeTextFile: !!files }, terminal: false };
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
    if (ended.stopReason !== expected) throw new Error(`expected ${expected}`);
    if (!questions) throw new Error("no question came");
    if (files && !written) throw new Error("the editor was not asked to write");
  });
} catch (error) {
  console.error(error);
  process.exitCode = 1;
} finally {
  child.stdin.end();
  child.kill();
}
