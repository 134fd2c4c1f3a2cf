"""The agent: starts `delta run` or `delta continue` in the sandbox, with Inspect's model behind it."""

import json
import random
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from inspect_ai.agent import Agent, AgentState, agent, sandbox_agent_bridge
from inspect_ai.model import ModelOutput
from inspect_ai.util import (
    ExecRemoteAwaitableOptions,
    ExecResult,
    SandboxEnvironment,
    StoreModel,
    store_as,
)
from inspect_ai.util import sandbox as find_sandbox
from pydantic import Field

from delta_inspect.messages import new_task
from delta_inspect.upload import make_directory, upload_agent, upload_program

# Errors of a RunResult that say something about the agent or the model, not about the machine: the sample is scored.
OUTCOMES = {
    "content_filter",
    "context_length",
    "empty_response",
    "ended_by_hook",
    "interrupted",
    "length",
    "limit",
    "loop",
    "max_iterations",
    "refusal",
    "text_call",
}

# The address of the bridge for each wire form; it speaks all four.
ADDRESSES = {
    "openai": "http://127.0.0.1:{port}/v1",
    "responses": "http://127.0.0.1:{port}/v1",
    "anthropic": "http://127.0.0.1:{port}",
    "gemini": "http://127.0.0.1:{port}",
}


class DeltaError(RuntimeError):
    """A run failed for a reason that says nothing about the agent: a mistake in its files, a failed call, a full disk."""


class DeltaRun(StoreModel):
    """What the log of a sample keeps of its run, in the store."""

    run_id: str | None = Field(default=None)
    """The id of the run, which a second call of the agent continues."""

    workspace: str | None = Field(default=None)
    """The workspace in the sandbox."""

    place: str | None = Field(default=None)
    """The directory in the sandbox for everything that is copied there."""

    agent: str | None = Field(default=None)
    """The agent directory in the sandbox."""

    program: str | None = Field(default=None)
    """The program `delta` in the sandbox."""

    result: dict[str, Any] | None = Field(default=None)
    """The RunResult of the last process of the run."""


@agent
def delta(
    agent_dir: str | None = None,
    *,
    program: str = "delta",
    upload: str | None = None,
    provider: str = "openai",
    workspace: str | None = None,
    options: Sequence[str] = (),
    env: dict[str, str] | None = None,
    user: str | None = None,
    sandbox: str | None = None,
    save: str | None = None,
    bridge: dict[str, Any] | None = None,
) -> Agent:
    """delta as an agent of Inspect.

    The run works in the sandbox of the sample. Its calls of the model go to Inspect's model, so they are in the log,
    count for Inspect's limits, and need no key in the sandbox. The result of the run becomes the completion; a second
    call of the agent in a sample continues the run.

    Args:
        agent_dir: An agent directory on the host, which is copied into the sandbox without `.env`; delta's built-in
            agent if there is none.
        program: The program `delta` in the sandbox.
        upload: A program `delta` on the host that is copied into the sandbox, for images that have none.
        provider: The wire form between delta and the bridge: `openai`, `responses`, `anthropic` or `gemini`.
        workspace: The workspace in the sandbox; the sandbox's working directory if there is none.
        options: More options of `delta run`, such as `["--max-iterations", "50", "--approve-all"]`.
        env: Variables for delta and its tools.
        user: The user that delta runs as.
        sandbox: The name of the sandbox; the default one if there is none.
        save: A directory on the host that gets the directory of each run as `RUN.tar.gz`.
        bridge: More arguments for `sandbox_agent_bridge()`, such as `{"model_aliases": {...}}`.

    Raises:
        DeltaError: The run failed for a reason that says nothing about the agent. Inspect counts it as an error of
            the sample. A run that reached a limit, or waits for a person, is scored with an empty completion.
    """
    if provider not in ADDRESSES:
        raise ValueError(f"expected a provider of {', '.join(ADDRESSES)}, found `{provider}`")
    name = Path(agent_dir).resolve().name if agent_dir else "default"

    async def execute(state: AgentState) -> AgentState:
        run = store_as(DeltaRun, instance=name)
        box = find_sandbox(sandbox)
        is_first = run.run_id is None
        task = new_task(state.messages, is_first)
        if is_first:
            run.run_id = f"inspect_{secrets.token_hex(6)}"
            run.workspace = workspace or await working_directory(box, user)
            run.place = await make_directory(box, user)
            run.program = (
                await upload_program(box, Path(upload), run.place)
                if upload
                else await find_program(box, program, user)
            )
            if agent_dir:
                run.agent = f"{run.place}/{name}"
                await upload_agent(box, Path(agent_dir), run.agent)
        images = []
        for ending, data in task.images:
            images.append(f"{run.place}/{secrets.token_hex(6)}.{ending}")
            await box.write_file(images[-1], data)

        # Agents of one sandbox, and all samples of the sandbox `local`, share the ports of their machine.
        port = random.randrange(20_000, 32_000)
        address = ADDRESSES[provider].format(port=port)
        command = command_line(run, is_first, provider, address, images, options)
        process_options = ExecRemoteAwaitableOptions(input=task.text, cwd=run.workspace, env=env, user=user)
        async with sandbox_agent_bridge(state, sandbox=sandbox, port=port, **(bridge or {})) as bridged:
            try:
                process = await box.exec_remote(command, process_options, stream=False)
            finally:
                if save:
                    # Also when a limit of Inspect has just ended the process.
                    with anyio.CancelScope(shield=True):
                        await save_run(box, run, Path(save), user)
            run.result = run_result(process)
            set_completion(bridged.state, completion(run.result))
            return bridged.state

    return execute


def set_completion(state: AgentState, text: str) -> None:
    """Makes the text the completion, also if it is empty: Inspect would fill that with the last message."""
    if text:
        state.output.completion = text
    else:
        state.output = ModelOutput(model=state.output.model, usage=state.output.usage)


async def find_program(box: SandboxEnvironment, program: str, user: str | None) -> str:
    """The path of a program in the sandbox."""
    found = await box.exec(["sh", "-c", 'command -v "$1"', "sh", program], user=user)
    if not found.success:
        raise DeltaError(f"there is no program `{program}` in the sandbox; `upload` copies one there")
    return found.stdout.strip()


async def working_directory(box: SandboxEnvironment, user: str | None) -> str:
    """The directory in which the sandbox starts commands."""
    return (await box.exec(["pwd"], user=user)).stdout.strip()


def command_line(
    run: DeltaRun,
    is_first: bool,
    provider: str,
    address: str,
    images: Sequence[str],
    options: Sequence[str],
) -> list[str]:
    """The command that starts the run or continues it, with the message on its standard input."""
    command = [run.program or "delta", "run" if is_first else "continue"]
    if is_first:
        command += ["--run-id", run.run_id or ""] + (["--agent", run.agent] if run.agent else [])
    else:
        command += [run.run_id or ""]
    command += ["-w", run.workspace or ".", "--format", "json", "--no-interactive", "-q"]
    command += ["--model", f"{provider}:inspect", "--llm", f"base_url={address}"]
    for image in images:
        command += ["-a", image]
    return [*command, *options, "-m", "-"]


def run_result(process: ExecResult[str]) -> dict[str, Any]:
    """The RunResult that delta printed.

    Raises:
        DeltaError: There is none, or its error says nothing about the agent's.
    """
    try:
        result: dict[str, Any] = json.loads(process.stdout)
    except ValueError:
        said = process.stderr.strip() or process.stdout.strip() or "nothing"
        raise DeltaError(f"delta ended with exit code {process.returncode} and printed: {said}") from None
    error = result.get("error")
    if error and error["type"] not in OUTCOMES:
        details = f" ({error['details']})" if error.get("details") else ""
        raise DeltaError(f"{error['type']}: {error['message']}{details}")
    return result


def completion(result: dict[str, Any]) -> str:
    """The result as text, as `--format raw` prints it; nothing unless the run is COMPLETED."""
    value = result.get("result")
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


async def save_run(box: SandboxEnvironment, run: DeltaRun, directory: Path, user: str | None) -> None:
    """Copies the run directory to the host, if the run got one: `delta show`, `view` and `replay` read it there."""
    packed = f"{run.place}/run.tar.gz"
    runs = f"{run.workspace}/.delta"
    done = await box.exec(["tar", "-czf", packed, "-C", runs, run.run_id or ""], user=user)
    if done.success:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{run.run_id}.tar.gz").write_bytes(await box.read_file(packed, text=False))
