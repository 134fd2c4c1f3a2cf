"""The program, and an agent with one tool, for tests with Inspect's mock model and its sandbox `local`."""

import os
from pathlib import Path

import pytest
import tiktoken
from inspect_ai.log import EvalLog

# Inspect counts tokens with an encoding that tiktoken would fetch; here a token is a byte.
tiktoken.registry.ENCODINGS["o200k_base"] = tiktoken.Encoding(
    "o200k_base",
    pat_str=r"(?s:.)",
    mergeable_ranks={bytes([byte]): byte for byte in range(256)},
    special_tokens={},
)

AGENT = """\
name: one-tool
llm: {provider: anthropic, model: never-asked, base_url: "https://example.invalid"}
max_iterations: 4
tools:
  - name: sh
    exec: sh -c ${script}
  - name: own
    exec: ${AGENT_HOME}/tools/own
"""


CONTEXT = """\
sources:
  - type: file
    id: system_prompt
    path: "${AGENT_HOME}/system_prompt.md"
  - type: journal
"""


@pytest.fixture
def program() -> str:
    """The built program, from the environment: there is no other place to look."""
    path = os.environ.get("DELTA")
    if not path or not Path(path).is_file():
        pytest.fail("set DELTA to the built program")
    return str(Path(path).resolve())


@pytest.fixture
def agent_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "one-tool"
    (directory / "tools").mkdir(parents=True)
    (directory / "agent.yaml").write_text(AGENT)
    (directory / "system_prompt.md").write_text("You answer with a call.\n")
    (directory / "context.yaml").write_text(CONTEXT)
    (directory / ".env").write_text("DELTA_API_KEY=sk-of-the-host\n")
    (directory / "tools" / "own").write_text("#!/bin/sh\necho own tool\n")
    (directory / "tools" / "own").chmod(0o755)
    return directory


def only_sample(log: EvalLog):
    """The one sample of a log, with its error in the message if it has one."""
    assert log.samples and len(log.samples) == 1, log.error
    return log.samples[0]
