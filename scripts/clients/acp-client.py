"""Drives `aye acp` with the official ACP SDK for Python, as an editor that has files and answers yes:
`acp-client.py AYE FOLDER PROMPT`."""
import asyncio
import os
import sys

import acp
from acp import schema

program, folder, prompt = sys.argv[1:4]
problems, asked, updates = [], [], []


class Editor(acp.Client):
    async def request_permission(self, session_id, tool_call, options, **_):
        asked.append(tool_call.title)
        allow = next(option for option in options if option.kind == "allow_once")
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=allow.option_id))

    async def session_update(self, session_id, update, **_):
        updates.append(update.session_update)

    async def read_text_file(self, session_id, path, line=None, limit=None, **_):
        with open(path) as file:
            return schema.ReadTextFileResponse(content=file.read())

    async def write_text_file(self, session_id, path, content, **_):
        with open(path, "w") as file:
            file.write(content)


async def main():
    async with acp.spawn_agent_process(Editor(), program, "acp", env=dict(os.environ), cwd=folder) as (agent, _):
        files = schema.FileSystemCapabilities(read_text_file=True, write_text_file=True)
        hello = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION,
                                       client_capabilities=schema.ClientCapabilities(fs=files))
        session = await agent.new_session(cwd=folder, mcp_servers=[])
        ended = await agent.prompt(session_id=session.session_id, prompt=[acp.text_block(prompt)])
        if ended.stop_reason != "end_turn":
            problems.append(f"stopped: {ended.stop_reason}")
        listed = await agent.list_sessions(cwd=folder)
        if [one.session_id for one in listed.sessions] != [session.session_id]:
            problems.append(f"listed: {listed.sessions}")
        updates.clear()
        await agent.load_session(cwd=folder, session_id=session.session_id, mcp_servers=[])
        if "user_message_chunk" not in updates or "agent_message_chunk" not in updates:
            problems.append(f"the history was not replayed: {updates}")
        print(hello.agent_info, asked)


asyncio.run(main())
if not asked:
    problems.append("no question came")
print({"problems": problems})
sys.exit(1 if problems else 0)
