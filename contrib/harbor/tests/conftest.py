"""The program, an agent, a task of Harbor and an endpoint that plays the model."""

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

# LiteLLM, which Harbor asks for the vendor of a model, would fetch prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

AGENT = """\
name: one-tool
llm: {provider: script, model: script.yaml, stream: false}
ask_human: false
max_iterations: 4
tools:
  - name: sh
    exec: sh -c ${script}
"""
CONTEXT = """\
sources:
  - type: file
    id: system_prompt
    path: "${AGENT_HOME}/system_prompt.md"
  - type: journal
"""
TASK = """\
version = "1.0"
[agent]
timeout_sec = 120
[verifier]
timeout_sec = 60
[environment]
build_timeout_sec = 60
"""
# The workspace has the answer and nothing of delta's.
TEST = """\
#!/bin/bash
mkdir -p /logs/verifier
if [ "$(cat answer.txt)" = 42 ] && [ "$(ls -A | tr '\\n' ' ')" = "answer.txt " ]; then echo 1; else echo 0; fi \\
    > /logs/verifier/reward.txt
"""


@pytest.fixture
def program() -> Path:
    """The built program, from the environment: there is no other place to look."""
    path = Path(os.environ.get("DELTA", ""))
    if not path.is_file():
        pytest.fail("set DELTA to the built program")
    return path.resolve()


@pytest.fixture
def agent_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "one-tool"
    directory.mkdir()
    (directory / "agent.yaml").write_text(AGENT)
    (directory / "system_prompt.md").write_text("You answer with a call.\n")
    (directory / "context.yaml").write_text(CONTEXT)
    (directory / ".env").write_text("DELTA_API_KEY=sk-of-the-host\n")
    write_script(directory, [{"tool": "sh", "args": {"script": "printf 42 > answer.txt"}}], "done")
    return directory


def write_script(directory: Path, calls: list[dict], text: str) -> None:
    """A script for the agent: an answer with these calls, then a text."""
    (directory / "script.yaml").write_text(json.dumps({"turns": [{"call": calls}, {"say": text}]}))


@pytest.fixture
def task(tmp_path: Path) -> Path:
    directory = tmp_path / "the-task"
    for name in ["environment", "tests"]:
        (directory / name).mkdir(parents=True)
    (directory / "task.toml").write_text(TASK)
    (directory / "instruction.md").write_text("Write 42 into answer.txt; it's \"easy\" & $HOME stays.\n")
    (directory / "environment" / "Dockerfile").write_text("FROM scratch\n")
    (directory / "tests" / "test.sh").write_text(TEST)
    return directory


@pytest.fixture
def endpoint() -> Iterator["Endpoint"]:
    server = Endpoint()
    yield server
    server.close()


class Endpoint:
    """Chat Completions on loopback: an answer with a call of `sh`, then one with a text. It keeps what it was sent."""

    def __init__(self) -> None:
        self.requests: list[dict] = []
        self.keys: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(request)
                outer.keys.append(self.headers.get("Authorization"))
                body = json.dumps(outer.answer(request)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, request: dict) -> dict:
        message: dict = {"role": "assistant", "content": "done"}
        if request["messages"][-1]["role"] == "user":
            call = {"name": "sh", "arguments": json.dumps({"script": "printf 42 > answer.txt"})}
            message = {"role": "assistant", "content": None}
            message["tool_calls"] = [{"id": "c1", "type": "function", "function": call}]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        return {"id": "x", "object": "chat.completion", "model": request["model"], "choices": [choice], "usage": usage}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
