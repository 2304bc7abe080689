"""Drives aye's MCP server with the official SDK: `mcp-client.py URL TOKEN` over HTTP, `mcp-client.py AYE FOLDER` over stdio.
It offers the newest revision first, lists the agents, calls one, answers its question through elicitation, and does so again
as a client without elicitation, which reads how to answer instead."""
import asyncio
import os
import sys

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

place, secret = sys.argv[1:3]
problems, asked = [], []


def check(holds, what):
    if not holds:
        problems.append(what)


async def elicit(context, params):
    asked.append(params.message)
    content = {name: True for name in params.requested_schema["required"]}
    return ElicitResult(action="accept", content=content)


def transport(http):
    if place.startswith("http"):
        return streamable_http_client(f"{place}/v1/mcp", http_client=http)
    return StdioServerParameters(command=place, args=["mcp", "serve"], env=dict(os.environ), cwd=secret)


def text(result):
    return " ".join(part.text for part in result.content if part.type == "text")


async def main():
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {secret}"}, timeout=30) as http:
        for answers in [elicit, None]:
            async with Client(transport(http), elicitation_callback=answers) as client:
                tools = (await client.list_tools()).tools
                check(tools and all("message" in tool.input_schema["properties"] for tool in tools), f"the tools are {tools}")
                name = "aye"
                said = await client.call_tool(name, {"message": "[[text]] Hello there."})
                check(not said.is_error and "Hello there." in text(said), f"a call gave {said}")
                done = await client.call_tool(name, {"message": "[[sh:touch a.txt]]"})
                if answers:
                    check(asked, "the question did not come")
                    check(not done.is_error and "It is done." in text(done), f"the answered call gave {done}")
                else:
                    check(done.is_error and "approve" in text(done), f"the unanswered call gave {done}")


asyncio.run(main())
print({"problems": problems, "asked": asked})
sys.exit(1 if problems else 0)
