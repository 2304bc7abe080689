// Drives `aye serve` with the official A2A SDK for JavaScript: card, send, a question and its answer, stream, get, list,
// cancel, push configs, and errors by name.
//   node a2a-client.mjs http://127.0.0.1:7400 TOKEN [rest|rpc]
import { randomUUID } from 'node:crypto';
import * as A from '@a2a-js/sdk';
import {
  ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory,
} from '@a2a-js/sdk/client';

const [base, token, binding = 'rest'] = process.argv.slice(2);
const problems = [];
const check = (is, what) => is || problems.push(what);
const fetchImpl = (url, init = {}) => {
  const headers = new Headers(init.headers);
  headers.set('Authorization', `Bearer ${token}`);
  return fetch(url, { ...init, headers });
};
const factory = new ClientFactory({
  ...ClientFactoryOptions.default,
  transports: [binding === 'rpc' ? new JsonRpcTransportFactory({ fetchImpl }) : new RestTransportFactory({ fetchImpl })],
  cardResolver: new DefaultAgentCardResolver({ fetchImpl }),
});
const stateOf = (task) => A.taskStateToJSON(task.status.state);
const request = (text, { taskId = '', messageId = randomUUID(), returnImmediately = false } = {}) => ({
  tenant: '',
  message: {
    messageId, taskId, contextId: '', role: A.Role.ROLE_USER, extensions: [], metadata: undefined, referenceTaskIds: [],
    parts: [{ content: { $case: 'text', value: text }, metadata: undefined, filename: '', mediaType: '' }],
  },
  configuration: { acceptedOutputModes: [], returnImmediately },
  metadata: undefined,
});
const refused = async (promise, name, what) => {
  const error = await promise.then(() => undefined, (error) => error);
  check(error && `${error.name} ${error.constructor.name}`.includes(name), `${what}: ${error?.name ?? 'no error'}: ${error?.message}`);
};

try {
  const client = await factory.createFromUrl(base);
  const card = await client.getAgentCard();
  check(card.name === 'aye' && card.capabilities.streaming, 'the card does not name a streaming agent');

  const said = await client.sendMessage(request('[[text]] Hello there.'));
  check(stateOf(said) === 'TASK_STATE_COMPLETED', `sent: ${stateOf(said)}`);
  check(JSON.stringify(said.artifacts).includes('Hello there.'), 'the answer has no text');

  // A question; and the same message twice is one task.
  const first = request('[[sh:touch a.txt]]');
  const asked = await client.sendMessage(first);
  check(stateOf(asked) === 'TASK_STATE_INPUT_REQUIRED', `a command does not ask: ${stateOf(asked)}`);
  check((await client.sendMessage(first)).id === asked.id, 'a repeated message started another task');
  const kinds = [];
  let last;
  for await (const { payload } of client.sendMessageStream(request('approve', { taskId: asked.id }))) {
    kinds.push(payload.$case);
    if (payload.value.status) last = stateOf(payload.value);
  }
  check(last === 'TASK_STATE_COMPLETED', `the approval led to ${last}: ${kinds}`);
  const got = await client.getTask({ tenant: '', id: asked.id, historyLength: undefined });
  check(stateOf(got) === 'TASK_STATE_COMPLETED' && got.artifacts.length > 0, 'the task that was got is not complete');
  const listed = await client.listTasks({ tenant: '', contextId: asked.contextId, status: 0, pageToken: '', historyLength: 0 });
  check(listed.tasks.some((task) => task.id === asked.id), 'the task is not listed');

  // A task that is cancelled while someone follows it.
  const slow = await client.sendMessage(request('[[stream:2000:20]]', { returnImmediately: true }));
  const following = (async () => {
    let state;
    for await (const { payload } of client.resubscribeTask({ tenant: '', id: slow.id })) {
      if (payload.value.status) state = stateOf(payload.value);
    }
    return state;
  })();
  const stopped = await client.cancelTask({ tenant: '', id: slow.id, metadata: undefined });
  check(stateOf(stopped) === 'TASK_STATE_CANCELED', `cancelled: ${stateOf(stopped)}`);
  check((await following) === 'TASK_STATE_CANCELED', 'a follower does not learn of the end');
  await refused(client.cancelTask({ tenant: '', id: slow.id, metadata: undefined }), 'TaskNotCancelable', 'cancelled twice');
  await refused(client.getTask({ tenant: '', id: 'no-such-task', historyLength: undefined }), 'TaskNotFound', 'an unknown task');
} catch (error) {
  problems.push(String(error.stack ?? error));
}
console.log(JSON.stringify({ problems }, null, 1));
process.exit(problems.length ? 1 : 0);
