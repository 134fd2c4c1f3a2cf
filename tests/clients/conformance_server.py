"""Runs server scenarios of the official conformance suite against `delta mcp serve`, and prints the outcome of each check.

The suite speaks HTTP, and its tools have fixed names and fields. So each scenario speaks to a bridge, which passes one HTTP
request on as one line: a call of another tool becomes a call of the agent with the name and the arguments as its message, and
the fields of a form get the name that the agent's form has. Nothing else is changed.

    python3 conformance_server.py DELTA CONFORMANCE SCENARIO@VERSION...
"""

import concurrent.futures
import glob
import http.server
import itertools
import json
import os
import queue
import subprocess
import sys
import threading

delta, conformance, *scenarios = sys.argv[1:]
AGENT = "suite"
# The tool whose form the suite answers under a name of its own.
FORM_KEYS = {"test_input_required_result_elicitation": "user_name"}
# The HTTP status of an error.
STATUS = {-32601: 404, -32602: 400, -32020: 400, -32021: 400, -32022: 400}


class Server:
    """A process of `delta mcp serve`."""

    def __init__(self, name):
        work = os.path.abspath(f"work/{name}")
        os.makedirs(work)
        self.process = subprocess.Popen(
            [delta, "mcp", "serve", "--agent", AGENT, "-w", work, "--max-runs", "50"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(f"{work}.err", "w"),
        )
        self.numbers = itertools.count(1)
        self.waiting = {}
        self.lock = threading.Lock()
        threading.Thread(target=self.read, daemon=True).start()

    def send(self, message):
        with self.lock:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def call(self, message):
        """Sends a request; returns the queue of what belongs to it. The last message is its answer."""
        number = next(self.numbers)
        messages = queue.Queue()
        token = message.get("params", {}).get("_meta", {}).get("progressToken")
        self.waiting[number] = (messages, token, message["id"])
        self.send({**message, "id": number})
        return messages

    def read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            if "method" not in message:
                messages, _, number = self.waiting.pop(message["id"])
                messages.put({**message, "id": number})
                continue
            token = message["params"].get("progressToken")
            # A question of the server belongs to the one call that waits; a notification, to the call with its token.
            for messages, expected, _ in list(self.waiting.values()):
                if "id" in message or token == expected:
                    messages.put(message)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def to_agent(message):
    """The request for the agent."""
    params = message.get("params", {})
    if message["method"] != "tools/call" or params.get("name") == AGENT:
        return message
    name = params["name"]
    text = f"{name} {json.dumps(params.get('arguments', {}), separators=(',', ':'))}"
    params = {**params, "name": AGENT, "arguments": {"message": text}}
    if isinstance(params.get("inputResponses"), dict):
        responses = params["inputResponses"]
        key = FORM_KEYS.get(name)
        params["inputResponses"] = {"answer" if k == key else k: with_answer(v) for k, v in responses.items()}
    return {**message, "params": params}


def with_answer(response):
    """The user's answer under the name that the agent's form has."""
    content = response.get("content") if isinstance(response, dict) else None
    if not isinstance(content, dict):
        return response
    value = next(iter(content.values()), None)
    return {**response, "content": {"answer": value}}


def to_suite(message, name):
    """The answer with the name that the suite gave to the form."""
    key = FORM_KEYS.get(name)
    requests = message.get("result", {}).get("inputRequests")
    if key and requests:
        requests = {key if k == "answer" else k: v for k, v in requests.items()}
        message = {**message, "result": {**message["result"], "inputRequests": requests}}
    return message


class Bridge(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self.reply(405)

    def do_DELETE(self):
        self.reply(405)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server.delta
        if "id" not in message or "method" not in message:
            if "result" in message:
                message = {**message, "result": with_answer(message["result"])}
            server.send(message)
            return self.reply(202)
        if message["method"] == "tasks/update":
            params = message["params"]
            responses = {k: with_answer(v) for k, v in params.get("inputResponses", {}).items()}
            message = {**message, "params": {**params, "inputResponses": responses}}
        name = (message.get("params") or {}).get("name")
        messages = server.call(to_agent(message))
        first = messages.get()
        if "method" not in first:
            status = STATUS.get(first.get("error", {}).get("code"), 200)
            return self.reply(status, to_suite(first, name))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        while True:
            self.wfile.write(f"event: message\ndata: {json.dumps(to_suite(first, name))}\n\n".encode())
            self.wfile.flush()
            if "method" not in first:
                break
            first = messages.get()
        self.close_connection = True

    def reply(self, status, body=None):
        data = json.dumps(body).encode() if body else b""
        self.send_response(status)
        if body:
            self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def run_scenario(one):
    scenario, version = one.split("@")
    server = Server(one)
    bridge = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bridge)
    bridge.delta = server
    bridge.daemon_threads = True
    threading.Thread(target=bridge.serve_forever, daemon=True).start()
    out = os.path.abspath(f"checks/{one}")
    url = f"http://127.0.0.1:{bridge.server_address[1]}/mcp"
    command = [conformance, "server", "--url", url, "--scenario", scenario, "--output-dir", out, "--timeout", "90000"]
    if version != "extension":
        command += ["--spec-version", version]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    bridge.shutdown()
    server.close()
    files = glob.glob(f"{out}/**/checks.json", recursive=True)
    if not files:
        return {"no checks": f"FAILURE: {ran.stdout}"}
    checks = {}
    for check in json.load(open(files[0])):
        outcome = check["status"]
        if check.get("errorMessage"):
            outcome += f": {check['errorMessage']}"
        # One id can have several checks: the worst counts.
        if not checks.get(check["id"], "SUCCESS").startswith("FAILURE"):
            checks[check["id"]] = outcome
    return checks


listed = subprocess.run([conformance, "list", "--server"], stdout=subprocess.PIPE, text=True, check=True).stdout
names = [line.split()[1] for line in listed.splitlines() if line.startswith("  - ")]
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    outcomes = dict(zip(scenarios, pool.map(run_scenario, scenarios)))
print(json.dumps({"listed": names, "outcomes": outcomes}))
