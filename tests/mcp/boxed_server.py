"""A server of the Model Context Protocol with one tool, which runs a script: python3 boxed_server.py"""

import json
import subprocess
import sys

SCHEMA = {"type": "object", "properties": {"script": {"type": "string"}}, "required": ["script"]}


def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "boxed"}}
    if method == "tools/list":
        return {"tools": [{"name": "sh", "description": "Runs a script.", "inputSchema": SCHEMA}]}
    if method == "tools/call":
        command = ["sh", "-c", params["arguments"]["script"]]
        ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        text = ran.stdout.decode(errors="replace")
        return {"content": [{"type": "text", "text": text}], "isError": ran.returncode != 0}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answer(request["method"], request.get("params"))
    reply = {"jsonrpc": "2.0", "id": request["id"]}
    if result is None:
        reply["error"] = {"code": -32601, "message": "unknown method"}
    else:
        reply["result"] = result
    print(json.dumps(reply), flush=True)
