// Drives `aye serve` with `useChat` of @ai-sdk/react in a real page of another origin: a command that asks, its approval,
// an answer that streams, and stop.
//   node use-chat.mjs http://127.0.0.1:7400 TOKEN PORT     (PORT: of the page, whose origin the server allows)
import { createServer } from 'node:http';
import { build } from 'esbuild';
import { chromium } from 'playwright-core';

const [base, token, port] = process.argv.slice(2);
const page = `
import React from 'react';
import { createRoot } from 'react-dom/client';
import { useChat } from '@ai-sdk/react';
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from 'ai';

const base = ${JSON.stringify(base)};
const headers = { Authorization: ${JSON.stringify(`Bearer ${token}`)} };
const transport = new DefaultChatTransport({ api: base + '/v1/ai-sdk/chat', headers });

function Chat() {
  const chat = useChat({ transport, resume: true, sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses });
  // A run is durable: the end of its connection does not stop it.
  const stop = async () => {
    await fetch(base + '/v1/ai-sdk/threads/' + chat.id + '/cancel', { method: 'POST', headers });
    await chat.stop();
  };
  const parts = chat.messages.flatMap((message) => message.parts);
  return <div>
    <p id="status">{chat.status}</p>
    <p id="chat">{chat.id}</p>
    <p id="error">{chat.error ? String(chat.error) : ''}</p>
    <form onSubmit={(event) => {
      event.preventDefault();
      chat.sendMessage({ text: event.currentTarget.text.value });
    }}><input name="text" /></form>
    <button id="stop" onClick={stop}>stop</button>
    {parts.map((part, at) => <div key={at} className={part.state ?? part.type}>
      {part.text ?? part.type}
      {part.state === 'approval-requested' &&
        <button className="approve" onClick={() => chat.addToolApprovalResponse({ id: part.approval.id, approved: true })}>yes</button>}
    </div>)}
  </div>;
}
createRoot(document.body.appendChild(document.createElement('main'))).render(<Chat />);
`;
const bundled = await build({
  stdin: { contents: page, loader: 'jsx', resolveDir: process.cwd() },
  bundle: true, write: false, format: 'iife', jsx: 'automatic', define: { 'process.env.NODE_ENV': '"production"' },
});
const script = bundled.outputFiles[0].text;
const server = createServer((request, reply) => {
  const isScript = request.url === '/page.js';
  reply.writeHead(200, { 'content-type': isScript ? 'text/javascript' : 'text/html' });
  reply.end(isScript ? script : '<!doctype html><meta charset="utf-8"><body><script src="/page.js"></script>');
});
await new Promise((done) => server.listen(Number(port), '127.0.0.1', done));

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: ['--no-sandbox'] });
let status = 0;
try {
  const tab = await browser.newPage();
  const problems = [];
  tab.on('pageerror', (error) => problems.push(String(error)));
  tab.on('console', (line) => line.type() === 'error' && !/favicon/.test(line.location().url) && problems.push(line.text()));
  await tab.goto(`http://127.0.0.1:${port}/`);
  const say = async (text) => {
    await tab.fill('input', text);
    await tab.press('input', 'Enter');
  };
  const isReady = () => tab.waitForFunction(() => document.querySelector('#status').textContent === 'ready');
  await say('[[sh:touch a.txt]]');
  await tab.click('.approve');
  await tab.waitForSelector('.output-available');
  await isReady();
  await say('[[text]] Hello there.');
  await tab.waitForFunction(() => document.body.textContent.includes('Hello there.'));
  await isReady();
  await say('[[stream:2000:20]]');
  await tab.waitForFunction(() => document.body.textContent.includes('word3'));
  await tab.click('#stop');
  await isReady();
  const chat = await tab.textContent('#chat');
  const latest = await fetch(`${base}/v1/threads/${chat}/runs/latest`, { headers: { Authorization: `Bearer ${token}` } });
  const { status: state, termination } = await latest.json();
  if (state !== 'done' || termination?.type !== 'cancelled') problems.push(`stop left the run ${state}, ${termination?.type}`);
  const error = await tab.textContent('#error');
  if (error) problems.push(error);
  console.log(JSON.stringify({ problems }));
  status = problems.length ? 1 : 0;
} catch (error) {
  console.log(error.stack);
  status = 1;
} finally {
  await browser.close();
  process.exit(status);
}
