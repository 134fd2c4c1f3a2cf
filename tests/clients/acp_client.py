"""Works with an agent as an editor does, with the Python SDK of ACP, and prints what came of it."""

import asyncio
import json
import os
import sys

import acp
from acp import schema

seen = {"permissions": [], "texts": []}


class Editor(acp.Client):
    def __init__(self):
        self.updates = []

    async def session_update(self, session_id, update, **more):
        self.updates.append(update)
        if isinstance(update, schema.AgentMessageChunk):
            seen["text"] = update.content.text

    async def request_permission(self, options, session_id, tool_call, **more):
        seen["permissions"].append(tool_call.title)
        outcome = schema.AllowedOutcome(option_id=options[0].option_id, outcome="selected")
        return schema.RequestPermissionResponse(outcome=outcome)

    async def create_elicitation(self, *arguments, **more):
        return schema.AcceptElicitationResponse(action="accept", content={"answer": "this"})

    def on_connect(self, connection):
        pass


async def main():
    editor = Editor()
    forms = schema.ElicitationCapabilities(form=schema.ElicitationFormCapabilities())
    work = os.path.abspath("work")
    process = acp.spawn_agent_process(
        editor, sys.argv[1], "acp", "--agent", "agent", use_unstable_protocol=True
    )
    async with process as (connection, _):
        await connection.initialize(
            protocol_version=acp.PROTOCOL_VERSION,
            client_capabilities=schema.ClientCapabilities(elicitation=forms),
        )
        session = await connection.new_session(cwd=work, mcp_servers=[])
        seen["modes"] = [session.modes.current_mode_id] + [mode.id for mode in session.modes.available_modes]
        prompt = [acp.text_block("go")]
        answer = await connection.prompt(session_id=session.session_id, prompt=prompt)
        seen["stop_reason"] = answer.stop_reason
        # Nothing is asked about in the other mode.
        approving = await connection.new_session(cwd=work, mcp_servers=[])
        await connection.set_session_mode(session_id=approving.session_id, mode_id="approve-all")
        await connection.prompt(session_id=approving.session_id, prompt=prompt)
        listed = await connection.list_sessions(cwd=work)
        seen["sessions"] = [one.title for one in listed.sessions]
        before = len(editor.updates)
        await connection.load_session(cwd=work, session_id=session.session_id, mcp_servers=[])
        seen["loaded"] = len(editor.updates) - before


asyncio.run(main())
print(json.dumps(seen))
