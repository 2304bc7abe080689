"""An agent on the official A2A SDK for Python, for `remote-agent.py`: asks which colour, and paints in the one that was
answered. Prints its URL."""
import socket

import uvicorn
from a2a.helpers.proto_helpers import new_task_from_user_message, new_text_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes.agent_card_routes import create_agent_card_routes
from a2a.server.routes.rest_routes import create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as pb
from starlette.applications import Starlette


class Painter(AgentExecutor):
    async def execute(self, context, event_queue):
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
            updater = TaskUpdater(event_queue, task.id, task.context_id)
            await updater.requires_input(new_text_message("Which colour?"))
            return
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.add_artifact([pb.Part(text=f"Painted in {context.get_user_input()}.")])
        await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


listener = socket.create_server(("127.0.0.1", 0))
url = f"http://127.0.0.1:{listener.getsockname()[1]}"
card = pb.AgentCard(
    name="painter", description="Paints.", version="1", default_input_modes=["text/plain"],
    default_output_modes=["text/plain"], capabilities=pb.AgentCapabilities(streaming=True),
    supported_interfaces=[pb.AgentInterface(url=f"{url}/a2a", protocol_binding="HTTP+JSON", protocol_version="1.0")])
handler = DefaultRequestHandler(agent_executor=Painter(), task_store=InMemoryTaskStore(), agent_card=card)
routes = create_agent_card_routes(card) + create_rest_routes(handler, path_prefix="/a2a")
print(url, flush=True)
uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="warning")).run(sockets=[listener])
