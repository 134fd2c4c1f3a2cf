"""A legacy server of the Model Context Protocol with the habits of real ones: python3 odd_server.py [HABIT...]"""

import json
import sys

HABITS = sys.argv[1:]
STATE = {"opened": False, "pages": 0}
SCHEMA = {"type": "object", "properties": {}}


def has(habit):
    return habit in HABITS


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(request, **outcome):
    if has("float-ids"):
        request = float(request)
    if has("text-ids"):
        request = str(request)
    send({"jsonrpc": "2.0", "id": request, **outcome})


def refuse(request, message, code=-32000, **more):
    answer(request, error={"code": code, "message": message, **more})


def meet_stranger(request):
    """What becomes of a first message that is not `initialize`; whether an answer may follow."""
    if has("ends"):
        sys.stderr.write("expected initialize\n")
        sys.exit(1)
    if has("refuses-and-ends"):
        refuse(request, "expected initialize")
        sys.exit(1)
    if has("hangs"):
        sys.stdin.read()
        sys.exit(0)
    if has("nameless"):
        send({"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Server not initialized"}})
    elif has("agrees"):
        answer(request, result={})
    elif not has("ignores"):
        refuse(request, "Method not found", -32601)


def list_tools(request, cursor):
    STATE["pages"] += 1
    names = ["b"] if cursor == 7 else ["a"]
    page = {"tools": [{"name": name, "inputSchema": SCHEMA} for name in names]}
    cursors = {"cursor-empty": "", "cursor-null": None, "cursor-false": False, "cursor-same": "x",
               "cursor-counts": str(STATE["pages"])}
    for habit in HABITS:
        if habit in cursors:
            page["nextCursor"] = cursors[habit]
    if has("cursor-number") and cursor is None:
        page["nextCursor"] = 7
    answer(request, result=page)


if has("logs"):
    sys.stdout.write("\ufeffstarting\n{not json\n[1]\n")
for line in sys.stdin:
    message = json.loads(line)
    request, method, params = message.get("id"), message["method"], message.get("params") or {}
    if request is None:
        if has("answers-notices"):
            send({"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": "Method not found"}})
        continue
    if has("logs"):
        sys.stdout.write(f'{{"level": "info", "id": {request}, "msg": "got a line"}}\n')
        send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "hello"}})
    if method == "initialize":
        STATE["opened"] = True
        if has("old") and params["protocolVersion"] != "2024-11-05":
            refuse(request, "Unsupported protocol version", -32602, data={"supported": ["2024-11-05"]})
            continue
        answer(request, result={"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}})
    elif not STATE["opened"]:
        meet_stranger(request)
    elif method == "tools/list":
        list_tools(request, params.get("cursor"))
    else:
        answer(request, result={"content": [{"type": "text", "text": "called"}]})
