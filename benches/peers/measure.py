"""Runs delta and its peers with one scripted server on loopback, and prints a Markdown table: `measure.py DELTA DIR`.

DIR has what benches/peers.sh installed. A peer that is missing, or does not end after the scripted calls, is named below
the table. The process runs in a network namespace of its own, so nothing leaves the machine.
"""

import ctypes
import fcntl
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROUNDS = int(os.environ.get("ROUNDS", "5"))
SHORT, LONG = 1, 21
# More than a run takes on a busy machine: a peer that waits for a user is ended.
SECONDS = 90
# No round starts later, so that the script ends on any machine.
MINUTES = 10
SHELLS = {"bash", "shell", "run", "exec_command", "shell_command"}
DELTA, DIR = os.path.realpath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
RUNS = DIR / "runs"


class Script:
    """What the server answers in one run, and what it saw."""

    def __init__(self, label, calls, ending=None, kill=False):
        self.label, self.calls, self.ending, self.kill = label, calls, ending, kill
        self.requests, self.seconds, self.arrival = [], 0.0, None


script = None


def scripted_arguments(parameters, command):
    """The arguments of a shell tool, by its schema: the command, and a text for every other one that it requires."""
    values = {name: "one call" for name in parameters.get("required", [])}
    return json.dumps(values | {name: command for name in ("command", "cmd") if name in parameters["properties"]})


def next_call(request):
    """The call to answer with, or nothing at the end; counted by the results in the request, so a repeated request is harmless."""
    items = request.get("messages") or request.get("input") or []
    done = sum(item.get("role") == "tool" or item.get("type") == "function_call_output" for item in items)
    tools = [tool.get("function", tool) for tool in request.get("tools", [])]
    shell = next((tool for tool in tools if tool.get("name") in SHELLS), None)
    command = f"true {script.label}-{done}" if done < script.calls else script.ending
    if shell is None or command is None:
        return None
    arguments = scripted_arguments(shell["parameters"], command)
    return {"id": f"call_{script.label}_{done}", "name": shell["name"], "arguments": arguments}


def chat_answer(call, is_stream):
    message = {"role": "assistant", "content": None if call else "Done."}
    if call:
        function = {"name": call["name"], "arguments": call["arguments"]}
        message["tool_calls"] = [{"index": 0, "id": call["id"], "type": "function", "function": function}]
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    answer = {"id": "chatcmpl-1", "created": 1, "model": "scripted", "usage": usage}
    reason = "tool_calls" if call else "stop"
    if not is_stream:
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return json.dumps({**answer, "object": "chat.completion", "choices": [choice]})
    choices = [{"index": 0, "delta": message, "finish_reason": None}, {"index": 0, "delta": {}, "finish_reason": reason}]
    chunks = [{**answer, "object": "chat.completion.chunk", "choices": [choice]} for choice in choices]
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def responses_answer(call):
    if call:
        item = {"type": "function_call", "id": "fc_1", "call_id": call["id"], "name": call["name"]}
        item |= {"arguments": call["arguments"], "status": "completed"}
    else:
        text = {"type": "output_text", "text": "Done.", "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
    usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    response = {"id": "resp_1", "object": "response", "model": "scripted", "output": [item], "usage": usage}
    events = [
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**response, "status": "completed"}},
    ]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, status, kind, body):
        head = f"HTTP/1.1 {status} OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body.encode())}\r\n\r\n"
        self.wfile.write((head + body).encode())

    def do_GET(self):
        models = {"object": "list", "data": [{"id": "scripted", "object": "model", "owned_by": "loopback"}]}
        self.answer(200, "application/json", json.dumps(models))

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        start = time.monotonic()
        request = json.loads(body)
        if request.get("tools"):
            script.requests.append(request)
            script.arrival = script.arrival or start
            if script.kill:
                kill_descendants()
                return
        is_stream = bool(request.get("stream"))
        call = next_call(request)
        answer = responses_answer(call) if self.path.endswith("/responses") else chat_answer(call, is_stream)
        self.answer(200, "text/event-stream" if is_stream else "application/json", answer)
        script.seconds += time.monotonic() - start


def descendants():
    """All processes below this one. It is their subreaper, so none escapes it."""
    children = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    queue = [os.getpid()]
    for pid in queue:
        queue += children.get(pid, [])
    return queue[1:]


def kill_descendants():
    for pid in descendants():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def run(peer, label, calls, kill=False):
    """One run of a peer: CPU, wall time without the server's, and the peak memory of its largest process."""
    global script
    script = Script(label, calls, peer.get("ending"), kill)
    memory = peer["home"] / "memory"
    command = [part.replace("LABEL", label) for part in peer["command"]]
    if not kill:
        # The kernel adds the memory of this process to the peak of the program that it starts; `time` is small.
        command = ["/usr/bin/time", "-q", "-f", "%M", "-o", str(memory), *command]
    with open(peer["home"] / "log", "ab") as log:
        start = time.monotonic()
        # Only this function waits for children: the kernel reports the usage of each once.
        process = subprocess.Popen(command, cwd=peer["work"], env=peer["env"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    timer = threading.Timer(SECONDS, kill_descendants)
    timer.start()
    cpu, status, end = 0.0, None, None
    while True:
        try:
            pid, code, used = os.wait4(-1, 0)
        except ChildProcessError:
            break
        cpu += used.ru_utime + used.ru_stime
        if pid == process.pid:
            status, end = code, time.monotonic()
            process.returncode = code
            kill_descendants()
    timer.cancel()
    if kill:
        if script.arrival is None:
            raise RuntimeError("no request arrived")
        return {"cpu": cpu, "wall": script.arrival - start}
    if status != 0 or len(script.requests) != calls + 1:
        raise RuntimeError(f"{len(script.requests)} requests instead of {calls + 1}, wait status {status}: {peer['home']}/log")
    return {"cpu": cpu, "wall": end - start - script.seconds, "memory": int(memory.read_text()) / 1000}


def texts(value):
    """The texts of a request, without the words of the protocol; arguments are JSON in a string."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key != "type":
                yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, str):
        if value.startswith("{"):
            try:
                yield from texts(json.loads(value))
                return
            except ValueError:
                pass
        yield value


def stored_text(peer):
    """Everything that the files of a peer's runs say, decoded: plain text, JSON, and the cells of SQLite."""
    for path in [*peer["home"].rglob("*"), *peer["work"].rglob("*")]:
        if not path.is_file() or path.name == "log":
            continue
        data = path.read_bytes()
        if data.startswith(b"SQLite format 3"):
            with sqlite3.connect(path) as database:
                database.text_factory = lambda data: data.decode(errors="replace")
                tables = database.execute("select name from sqlite_master where type = 'table'").fetchall()
                for (table,) in tables:
                    for row in database.execute(f'select * from "{table}"'):
                        yield from (str(cell) for cell in row)
        else:
            yield data.decode(errors="replace")


def missing_lines(peer):
    """The lines of the last run's requests that no file has, neither as they are nor as JSON writes them, once or twice."""
    stored = "\n".join(stored_text(peer))
    lines = {line.strip() for request in peer["requests"] for text in texts(request) for line in text.splitlines()}

    def is_stored(line):
        forms = [line, json.dumps(line, ensure_ascii=False)[1:-1], json.dumps(line)[1:-1]]
        forms += [json.dumps(form)[1:-1] for form in forms[1:]]
        return any(form in stored for form in forms)

    return sorted(line for line in lines if not is_stored(line))


def megabytes(path):
    files = [path] if path.is_file() else [file for file in path.rglob("*") if not file.is_symlink() and file.is_file()]
    blocks = {(file.stat().st_dev, file.stat().st_ino): file.stat().st_blocks for file in files}
    return sum(blocks.values()) * 512 / 1e6


def prepare(url, directory):
    """The agents with their configurations: approvals off, telemetry and updates off, the scripted model."""
    task = "Run the commands. This is run LABEL."

    def peer(name, program, *arguments, files=(), env=(), **more):
        home, work = RUNS / re.sub(r"\W+", "-", name), directory / re.sub(r"\W+", "-", name)
        home.mkdir(parents=True)
        work.mkdir()
        for path, text in dict(files).items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text(text)
        command = [str(program), *(argument.replace("HOME", str(home)).replace("WORK", str(work)) for argument in arguments)]
        common = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "OPENAI_API_KEY": "none"}
        env = {key: value.replace("HOME", str(home)) for key, value in dict(env).items()}
        return {"name": name, "command": command, "env": {**common, **env}, "home": home, "work": work, "figures": [], **more}

    delta_env = {"DELTA_BASE_URL": url, "DELTA_API_KEY": "none"}
    delta_run = ["run", "--model", "openai:scripted", "-q", "--format", "raw"]
    tool = "tools:\n  - name: bash\n    description: Run a command\n    exec: sh -c ${command}\n"
    agent_yaml = f"name: shell\nfinish: false\nask_human: false\n{tool}"
    context_yaml = "sources: [{type: file, path: system_prompt.md}, {type: journal}]\n"
    agent = {"agent/agent.yaml": agent_yaml, "agent/context.yaml": context_yaml, "agent/system_prompt.md": "You run commands.\n"}
    mini = DIR / "mini-swe-agent/bin/mini"
    llm_model = f"- {{model_id: scripted, model_name: scripted, api_base: '{url}', can_stream: true, supports_tools: true}}\n"
    llm_function = (
        "import subprocess\n\ndef shell(command: str) -> str:\n    'Run a command'\n"
        "    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout\n"
    )
    codex_toml = f"""model = "scripted"
model_provider = "loopback"
check_for_update_on_startup = false
[model_providers.loopback]
name = "loopback"
base_url = "{url}"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
[analytics]
enabled = false
[feedback]
enabled = false
[otel]
exporter = "none"
metrics_exporter = "none"
"""
    loopback = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": url, "apiKey": "none"}, "models": {"scripted": {}}}
    opencode_json = {"provider": {"loopback": loopback}, "model": "loopback/scripted", "autoupdate": False, "share": "disabled"}
    opencode_env = ["AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE"]
    return [
        peer(
            "delta", DELTA, *delta_run, "--agent", "HOME/agent", "-w", "WORK", task,
            files=agent, env=delta_env, installed=pathlib.Path(DELTA),
        ),
        peer("delta (coding agent)", DELTA, *delta_run, "--approve-all", task, env=delta_env, installed=pathlib.Path(DELTA)),
        peer(
            "mini-swe-agent", mini, "-y", "--exit-immediately", "-m", "openai/scripted", "-o", "HOME/LABEL.traj.json", "-t", task,
            env={
                "OPENAI_API_BASE": url, "MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors",
                "MSWEA_GLOBAL_CONFIG_DIR": "HOME/config", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            },
            ending="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
        ),
        peer(
            "llm", DIR / "llm/bin/llm", "-m", "scripted", "--functions", "HOME/shell.py", "--cl", "0", task,
            files={"user/extra-openai-models.yaml": llm_model, "shell.py": llm_function}, env={"LLM_USER_PATH": "HOME/user"},
        ),
        peer(
            "codex", DIR / "codex/node_modules/.bin/codex", "exec", "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox", task, files={".codex/config.toml": codex_toml},
        ),
        peer(
            "opencode", DIR / "opencode/node_modules/.bin/opencode", "run", "--auto", "--title", "a run", task,
            files={".config/opencode/opencode.json": json.dumps(opencode_json)},
            env={f"OPENCODE_DISABLE_{name}": "1" for name in opencode_env},
        ),
    ]


def raise_loopback():
    """A new network namespace has a loopback that is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 0x1 | 0x40))


def version(peer):
    command = [peer["command"][0], "--version"]
    printed = subprocess.run(command, env=peer["env"], cwd=peer["work"], capture_output=True, text=True, timeout=60)
    return re.search(r"\d+\.\d+\.\d+|\d+\.\d+", printed.stdout + printed.stderr)[0]


def run_round(peer, number):
    """The figures of one round, in milliseconds and MB."""
    start = run(peer, f"{number}s", 0, kill=True)
    short, long = run(peer, f"{number}a", SHORT), run(peer, f"{number}b", LONG)
    peer["requests"] = script.requests
    figures = {"memory": long["memory"]}
    for key in "cpu", "wall":
        figures["start " + key] = start[key] * 1000
        figures["iteration " + key] = (long[key] - short[key]) * 1000 / (LONG - SHORT)
    return figures


def row(peer):
    missing = missing_lines(peer)
    if missing:
        examples = ", ".join(repr(line[:60]) for line in missing[:: len(missing) // 5 + 1])
        print(f"{peer['name']}: no file has {len(missing)} lines of its requests, such as {examples}", file=sys.stderr)
    median = {key: statistics.median(figures[key] for figures in peer["figures"]) for key in peer["figures"][0]}
    cells = [
        peer["name"],
        version(peer),
        f"{median['start cpu']:.0f} ms, {median['start wall']:.0f} ms",
        f"{median['iteration cpu']:.1f} ms, {median['iteration wall']:.1f} ms",
        f"{median['memory']:.0f} MB",
        f"{megabytes(peer.get('installed', DIR / peer['name'])):.0f} MB",
        "no" if missing else "yes",
    ]
    return f"| {' | '.join(cells)} |"


def main():
    if ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0) != 0:
        sys.exit("this kernel has no PR_SET_CHILD_SUBREAPER")
    raise_loopback()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shutil.rmtree(RUNS, ignore_errors=True)
    # On a disk, and outside of a repository, which some would copy.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        measure(prepare(f"http://127.0.0.1:{server.server_port}/v1", pathlib.Path(directory)))


def measure(peers):
    only = os.environ.get("PEERS", "").split(",")
    skipped, measured = {}, []
    for peer in peers:
        if only != [""] and peer["name"] not in only:
            continue
        if os.path.exists(peer["command"][0]):
            measured.append(peer)
        else:
            skipped[peer["name"]] = "not installed"
    end = time.monotonic() + MINUTES * 60
    rounds = 0
    # The first round fills caches and makes databases.
    while rounds <= ROUNDS and (rounds < 2 or time.monotonic() < end):
        for peer in list(measured):
            try:
                figures = run_round(peer, rounds)
            except RuntimeError as error:
                skipped[peer["name"]] = str(error)
                measured.remove(peer)
                continue
            print(f"round {rounds}, {peer['name']}: {figures}", file=sys.stderr)
            if rounds > 0:
                peer["figures"].append(figures)
        rounds += 1
    print("| | version | to the first request: CPU, wall | an iteration: CPU, wall | peak memory | installed | requests on disk |")
    print("|---|---|---|---|---|---|---|")
    for peer in measured:
        print(row(peer))
    print(f"\nMedians of {rounds - 1} runs.")
    for name, reason in skipped.items():
        print(f"Not measured: {name}: {reason}.")


main()
