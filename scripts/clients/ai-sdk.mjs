// Drives `aye serve` with the AI SDK, as useChat does: a message whose command asks, its approval, the end, and an answer
// that comes late.
//   node ai-sdk.mjs http://127.0.0.1:7400 TOKEN "run the tests" [PACKAGE]
const [base, token, text, version = 'ai'] = process.argv.slice(2);
const { AbstractChat, DefaultChatTransport, ...ai } = await import(version);
// The first v6 has no such helper: the approvals are sent when all are answered, as it does.
const isAnswered = ({ messages }) =>
  messages.at(-1).parts.some((part) => part.state === 'approval-responded') &&
  !messages.at(-1).parts.some((part) => part.state === 'approval-requested');

/** The messages of a chat, as a front end without a screen keeps them. */
class State {
  messages = [];
  status = 'ready';
  pushMessage = (message) => void (this.messages = [...this.messages, message]);
  popMessage = () => void (this.messages = this.messages.slice(0, -1));
  replaceMessage = (at, message) => void (this.messages = this.messages.with(at, message));
  snapshot = (value) => structuredClone(value);
}
class Chat extends AbstractChat {
  constructor(options) {
    super({ ...options, state: new State() });
  }
}

const problems = [];
const chat = new Chat({
  transport: new DefaultChatTransport({
    api: `${base}/v1/ai-sdk/chat`,
    headers: { Authorization: `Bearer ${token}` },
  }),
  sendAutomaticallyWhen: ai.lastAssistantMessageIsCompleteWithApprovalResponses ?? isAnswered,
  onError: (error) => problems.push(String(error)),
});
const states = () => chat.messages.flatMap((message) => message.parts).map((part) => part.state ?? part.type);

await chat.sendMessage({ text });
console.log('asked', states().join(' '));
const asks = chat.messages.flatMap((message) => message.parts).filter((part) => part.state === 'approval-requested');
for (const part of asks) await chat.addToolApprovalResponse({ id: part.approval.id, approved: true });
for (let waited = 0; asks.length && waited < 30_000; waited += 50) {
  if (chat.status === 'ready' && !states().includes('approval-responded')) break;
  await new Promise((done) => setTimeout(done, 50));
}
console.log('ended', chat.status, states().join(' '));
if (!asks.length) problems.push('no question came');
if (!states().includes('output-available')) problems.push('the call gave no output');

// The same approval again, and a denial that comes too late: the stream says what happened, and nothing runs twice.
const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
for (const approved of [true, false]) {
  const copy = structuredClone(chat.messages.slice(0, 2));
  for (const part of copy[1].parts.filter((part) => part.approval)) {
    Object.assign(part, { state: 'approval-responded', output: undefined, approval: { id: part.approval.id, approved } });
  }
  const again = new Chat({
    id: chat.id, messages: copy, onError: (error) => problems.push(`late: ${error}`),
    transport: new DefaultChatTransport({ api: `${base}/v1/ai-sdk/chat`, headers }),
  });
  again.state.messages = copy;
  await again.sendMessage();
  const last = again.messages.at(-1);
  if (!last.parts.some((part) => part.state === 'output-available')) problems.push(`a late answer led to ${JSON.stringify(last.parts)}`);
}
const fresh = await fetch(`${base}/v1/ai-sdk/chat/${crypto.randomUUID()}/stream`, { headers });
if (fresh.status !== 204) problems.push(`resuming a new chat answered ${fresh.status}`);
const reply = await fetch(`${base}/v1/ai-sdk/chat/${chat.id}/stream`, { headers: { Authorization: `Bearer ${token}` } });
if (reply.status !== 204) problems.push(`resuming when nothing runs answered ${reply.status}`);
console.log(JSON.stringify({ problems }));
process.exit(problems.length ? 1 : 0);
