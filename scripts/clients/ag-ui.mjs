// Drives `aye serve` with AG-UI's HttpAgent, which checks every event: an interrupt, its answer, and the end.
// Writes the events of both runs, one a line, for a validator.
//   node ag-ui.mjs http://127.0.0.1:7400 TOKEN "run the tests" [FILE]
import { randomUUID } from 'node:crypto';
import { appendFileSync, rmSync } from 'node:fs';
import { HttpAgent } from '@ag-ui/client';

const [base, token, text, file] = process.argv.slice(2);
if (file) rmSync(file, { force: true });
const problems = [];
const agent = new HttpAgent({
  url: `${base}/v1/ag-ui/run`,
  threadId: randomUUID(),
  headers: { Authorization: `Bearer ${token}` },
});

/** One run; the kinds of its events, and the last one. */
async function run(input) {
  const kinds = [];
  let last;
  try {
    await agent.runAgent(input, {
      onEvent: ({ event }) => {
        kinds.push(event.type);
        if (file) appendFileSync(file, `${JSON.stringify(event)}\n`);
        last = event;
      },
    });
  } catch (error) {
    problems.push(String(error));
  }
  console.log([...new Set(kinds)].join(' '));
  return last;
}

agent.addMessage({ id: randomUUID(), role: 'user', content: text });
const asked = await run({ runId: randomUUID() });
const interrupts = asked?.outcome?.interrupts ?? [];
if (!interrupts.length) problems.push('no interrupt came');
const resume = interrupts.map(({ id }) => ({ interruptId: id, status: 'resolved', payload: { approved: true } }));
const ended = await run({ runId: randomUUID(), resume });
if (ended?.type !== 'RUN_FINISHED' || ended.outcome?.type === 'interrupt') problems.push('the run did not end');
if (!agent.messages.some((message) => message.role === 'tool')) problems.push('the call gave no result');
console.log(JSON.stringify({ problems }));
process.exit(problems.length ? 1 : 0);
