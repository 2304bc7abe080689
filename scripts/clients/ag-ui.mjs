// Drives `aye serve` with AG-UI's HttpAgent, which checks every event: an interrupt, its answer, and the end; an interrupt
// that was answered elsewhere, a tool of the page, its state, a second page, and a stop button.
// Writes the events of all runs, one a line, for a validator.
//   node ag-ui.mjs http://127.0.0.1:7400 TOKEN "run the tests" [FILE]
import { randomUUID } from 'node:crypto';
import { appendFileSync, rmSync } from 'node:fs';
import { HttpAgent } from '@ag-ui/client';

const [base, token, text, file] = process.argv.slice(2);
if (file) rmSync(file, { force: true });
const problems = [];
const headers = { Authorization: `Bearer ${token}` };
const check = (is, what) => is || problems.push(what);
const open = (threadId = randomUUID(), more = {}) => new HttpAgent({ url: `${base}/v1/ag-ui/run`, threadId, headers, ...more });
const agent = open();

/** One run; the kinds of its events, and the last one. */
async function run(input, of = agent) {
  const kinds = [];
  let last;
  try {
    await of.runAgent(input, {
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

const say = (of, content) => of.addMessage({ id: randomUUID(), role: 'user', content });
const texts = (of) => of.messages.map((message) => message.content).filter((content) => typeof content === 'string' && content);
const api = async (path, body) => (await fetch(`${base}/v1${path}`, {
  method: body ? 'POST' : 'GET',
  headers: { ...headers, ...(body && { 'Content-Type': 'application/json' }) },
  body: body && JSON.stringify(body),
})).json();
const until = async (what, is) => {
  for (let waited = 0; waited < 30_000; waited += 50) {
    if (await is()) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  problems.push(`${what} did not come`);
};
const isDone = (threadId) => async () => (await api(`/threads/${threadId}`)).status === 'done';

agent.addMessage({ id: randomUUID(), role: 'user', content: text });
const asked = await run({ runId: randomUUID() });
const interrupts = asked?.outcome?.interrupts ?? [];
if (!interrupts.length) problems.push('no interrupt came');
const resume = interrupts.map(({ id }) => ({ interruptId: id, status: 'resolved', payload: { approved: true } }));
const ended = await run({ runId: randomUUID(), resume });
if (ended?.type !== 'RUN_FINISHED' || ended.outcome?.type === 'interrupt') problems.push('the run did not end');
if (!agent.messages.some((message) => message.role === 'tool')) problems.push('the call gave no result');

// An interrupt that somebody else answered; what is written beside the late answer is said.
const late = open();
say(late, text);
const lateAsked = (await run({ runId: randomUUID() }, late))?.outcome?.interrupts?.[0];
const card = await api(`/approvals/${lateAsked?.id}`);
await api(`/approvals/${card.id}/approve`, { shown_hash: card.shown_hash });
await until('the end of a run that was answered elsewhere', isDone(late.threadId));
say(late, '[[text]] Still here.');
await run({ runId: randomUUID(), resume: [{ interruptId: card.id, status: 'cancelled' }] }, late);
check(texts(late).at(-1) === 'Still here.', `after a late answer: ${texts(late)}`);
check(texts(late).includes('It is done.'), `the end of the run is missing: ${texts(late)}`);

// A tool of the page, and the page's state.
const tools = [{ name: 'pick_color', description: 'Picks a color', parameters: { type: 'object', properties: {} } }];
const page = open(undefined, { initialState: { cart: ['tea'] } });
say(page, '[[call:pick_color]]');
const called = await run({ runId: randomUUID(), tools }, page);
check(called?.outcome?.type === 'success', `a tool of the page is asked about: ${JSON.stringify(called?.outcome)}`);
const toolCallId = page.messages.flatMap((message) => message.toolCalls ?? []).at(-1)?.id;
page.addMessage({ id: randomUUID(), role: 'tool', toolCallId, content: 'red' });
await run({ runId: randomUUID(), tools }, page);
check(texts(page).at(-1) === 'It is done.', `after the result of a page's tool: ${texts(page)}`);
check(JSON.stringify(page.state?.cart) === '["tea"]', `the page's state is ${JSON.stringify(page.state)}`);
check(Object.keys(page.state ?? {}).every((key) => !key.includes('.')), `published: ${Object.keys(page.state ?? {})}`);

// A second page joins, and looks only.
const second = open(page.threadId);
await run({ runId: randomUUID() }, second);
check(JSON.stringify(texts(second)) === JSON.stringify(texts(page)), `a page that joins has ${texts(second)}`);

// A stop button: the page ends, and so does the run.
const slow = open();
say(slow, '[[stream:2000:20]]');
const running = run({ runId: randomUUID() }, slow);
await until('text', () => texts(slow).some((text) => text.includes('word3')));
await api(`/ag-ui/threads/${slow.threadId}/cancel`, {});
slow.abortRun();
await running;
await until('the end of a run that was stopped', isDone(slow.threadId));
const stopped = (await api(`/threads/${slow.threadId}/runs/latest`)).termination?.type;
check(stopped === 'cancelled', `a stopped run ended with ${stopped}`);

console.log(JSON.stringify({ problems }));
process.exit(problems.length ? 1 : 0);
