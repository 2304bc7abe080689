"""Drives `aye serve` with the official A2A SDK for Python, whose JSON is strict: card, send, a question and its answer over
a stream, get, list, push configs, cancel, and errors by name: `a2a-client.py http://127.0.0.1:7400 TOKEN`."""
import asyncio
import sys
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError

base, token = sys.argv[1:3]
problems = []


def check(holds, what):
    if not holds:
        problems.append(what)


def request(text, task=""):
    message = pb.Message(message_id=str(uuid.uuid4()), role=pb.Role.ROLE_USER, parts=[pb.Part(text=text)], task_id=task)
    return pb.SendMessageRequest(message=message)


async def last_state(events):
    task, state = None, None
    async for event in events:
        kind = event.WhichOneof("payload")
        if kind == "task":
            task, state = event.task.id, event.task.status.state
        elif kind == "status_update":
            task, state = event.status_update.task_id, event.status_update.status.state
    return task, pb.TaskState.Name(state)


async def refused(call, error, what):
    try:
        await call
        problems.append(f"{what}: no error")
    except error:
        pass


async def main():
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=30) as http:
        card = await A2ACardResolver(http, base).get_agent_card()
        check(card.name == "aye" and card.capabilities.streaming, "the card does not name a streaming agent")
        for binding, streams in [(binding, streams) for binding in ["HTTP+JSON", "JSONRPC"] for streams in [True, False]]:
            config = ClientConfig(streaming=streams, httpx_client=http, supported_protocol_bindings=[binding])
            client = ClientFactory(config).create(card)
            _, state = await last_state(client.send_message(request("[[text]] Hello.")))
            check(state == "TASK_STATE_COMPLETED", f"sent: {state}")
            task, state = await last_state(client.send_message(request("[[sh:touch a.txt]]")))
            check(state == "TASK_STATE_INPUT_REQUIRED", f"a command does not ask: {state}")
            _, state = await last_state(client.send_message(request("approve", task)))
            check(state == "TASK_STATE_COMPLETED", f"the approval led to {state}")
        got = await client.get_task(pb.GetTaskRequest(id=task))
        check(got.artifacts and got.status.state == pb.TaskState.TASK_STATE_COMPLETED, "the task is not complete")
        listed = await client.list_tasks(pb.ListTasksRequest(context_id=got.context_id))
        check([one.id for one in listed.tasks] == [task], "the task is not listed")
        extended = await client.get_extended_agent_card(pb.GetExtendedAgentCardRequest())
        check(any(one.tenant for one in extended.supported_interfaces), "the extended card names no tenant")
        await refused(client.cancel_task(pb.CancelTaskRequest(id=task)), TaskNotCancelableError, "cancelled too late")
        await refused(client.get_task(pb.GetTaskRequest(id="none")), TaskNotFoundError, "an unknown task")


asyncio.run(main())
print({"problems": problems})
sys.exit(1 if problems else 0)
