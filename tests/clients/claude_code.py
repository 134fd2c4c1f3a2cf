"""Runs Claude Code against a scripted Messages endpoint: it calls an agent, and gets what the agent returned."""

import http.server
import json
import os
import subprocess
import sys
import threading

delta, claude = sys.argv[1:]
TOOL = "mcp__agent__test-agent"
seen = {"tools": [], "results": []}


class Endpoint(http.server.BaseHTTPRequestHandler):
    """Calls the agent once, and then says what it returned."""

    def log_message(self, *arguments):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "count_tokens" in self.path:
            return self.reply("application/json", json.dumps({"input_tokens": 1}))
        names = [tool["name"] for tool in body.get("tools", [])]
        content = body["messages"][-1]["content"]
        blocks = content if isinstance(content, list) else []
        results = [block for block in blocks if block.get("type") == "tool_result"]
        if results:
            seen["results"] += results
            text = results[-1]["content"]
            block = {"type": "text", "text": text if isinstance(text, str) else text[0]["text"]}
        elif TOOL in names:
            seen["tools"] = [name for name in names if name.startswith("mcp__")]
            block = {"type": "tool_use", "id": "toolu_1", "name": TOOL, "input": {"message": "go"}}
        else:
            block = {"type": "text", "text": "none"}
        self.answer(body, block)

    def answer(self, body, block):
        is_call = block["type"] == "tool_use"
        reason = "tool_use" if is_call else "end_turn"
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "usage": usage}
        if not body.get("stream"):
            message = {**message, "content": [block], "stop_reason": reason, "stop_sequence": None}
            return self.reply("application/json", json.dumps(message))
        if is_call:
            start = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        else:
            start = {**block, "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        events = [
            {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "stop_sequence": None}},
            {"type": "content_block_start", "index": 0, "content_block": start},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
        lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
        self.reply("text/event-stream", "".join(lines))

    def reply(self, kind, text):
        data = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ.update(
    ANTHROPIC_BASE_URL=f"http://127.0.0.1:{server.server_address[1]}",
    ANTHROPIC_API_KEY="sk-scripted",
    CLAUDE_CONFIG_DIR=os.path.abspath("claude-home"),
    # Nothing but the endpoint is asked.
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    DISABLE_AUTOUPDATER="1",
    # All tools are in the first request, and not behind a search.
    ENABLE_TOOL_SEARCH="false",
)
serve = ["mcp", "serve", "--agent", os.path.abspath("agent"), "-w", os.path.abspath("work")]
# The recipe of the guide.
subprocess.run([claude, "mcp", "add", "agent", "--", delta, *serve], check=True, stdout=subprocess.DEVNULL)
command = [claude, "-p", "go", "--model", "claude-scripted", "--allowedTools", TOOL, "--output-format", "json"]
ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
try:
    seen["answer"] = json.loads(ran.stdout).get("result")
except ValueError:
    seen["answer"] = ran.stdout + ran.stderr
print(json.dumps(seen))
