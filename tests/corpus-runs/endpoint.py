"""A Chat Completions endpoint with two streamed answers, for make.sh; writes its port into the file that is named."""

import http.server
import json
import sys

USAGE = {"prompt_tokens": 120, "completion_tokens": 15, "prompt_tokens_details": {"cached_tokens": 64}}
CALL = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "say", "arguments": '{"text": "from the endpoint"}'}}
ANSWERS = [
    [{"content": "I call"}, {"content": " a tool."}, {"tool_calls": [CALL]}, "tool_calls"],
    [{"content": "The tool has spoken."}, "stop"],
]


class Endpoint(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        *deltas, reason = ANSWERS.pop(0)
        choices = [{"index": 0, "delta": delta} for delta in deltas]
        choices.append({"index": 0, "delta": {}, "finish_reason": reason})
        chunks = [{"model": "test-model-1", "choices": [choice]} for choice in choices]
        chunks.append({"model": "test-model-1", "choices": [], "usage": USAGE})
        body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *arguments):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Endpoint)
with open(sys.argv[1], "w") as file:
    file.write(str(server.server_port))
server.serve_forever()
