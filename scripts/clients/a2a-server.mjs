// An agent on the official A2A SDK for JavaScript, for `remote-agent.py`: asks which colour, and paints in the one that
// was answered. Prints its URL.
import express from 'express';
import { Role, TaskState } from '@a2a-js/sdk';
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server';
import { agentCardHandler, restHandler, UserBuilder } from '@a2a-js/sdk/server/express';

const text = (value) => ({ content: { $case: 'text', value }, metadata: undefined, filename: '', mediaType: '' });
const executor = {
  async execute({ userMessage, task: known, taskId, contextId }, bus) {
    const message = (value) => ({
      messageId: crypto.randomUUID(), role: Role.ROLE_AGENT, parts: [text(value)], taskId, contextId, extensions: [],
      metadata: undefined, referenceTaskIds: [],
    });
    const status = (state, said) => ({ state, timestamp: new Date().toISOString(), message: said && message(said) });
    const task = known ?? { id: taskId, contextId, artifacts: [], history: [userMessage], metadata: undefined };
    bus.publish(AgentEvent.task({ ...task, status: status(TaskState.TASK_STATE_WORKING) }));
    const update = (state, said) =>
      bus.publish(AgentEvent.statusUpdate({ taskId, contextId, status: status(state, said), metadata: undefined }));
    if (known) {
      const colour = userMessage.parts.map((part) => part.content?.value).join('');
      const artifact = { artifactId: 'a', name: '', description: '', parts: [text(`Painted in ${colour}.`)], extensions: [], metadata: undefined };
      bus.publish(AgentEvent.artifactUpdate({ taskId, contextId, artifact, append: false, lastChunk: true, metadata: undefined }));
      update(TaskState.TASK_STATE_COMPLETED);
    } else {
      update(TaskState.TASK_STATE_INPUT_REQUIRED, 'Which colour?');
    }
    bus.finished();
  },
  async cancelTask() {},
};

const app = express();
const listener = app.listen(0, '127.0.0.1', () => {
  const url = `http://127.0.0.1:${listener.address().port}`;
  const card = {
    name: 'painter', description: 'Paints.', version: '1', provider: undefined, documentationUrl: '', iconUrl: '',
    supportedInterfaces: [{ url: `${url}/a2a`, protocolBinding: 'HTTP+JSON', protocolVersion: '1.0', tenant: '' }],
    capabilities: { streaming: true, pushNotifications: false, extensions: [], extendedAgentCard: false },
    securitySchemes: {}, securityRequirements: [], defaultInputModes: ['text/plain'], defaultOutputModes: ['text/plain'],
    skills: [], signatures: [],
  };
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), executor);
  app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler }));
  app.use('/a2a', restHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
  console.log(url);
});
