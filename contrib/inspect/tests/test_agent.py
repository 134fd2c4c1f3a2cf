"""Runs of delta inside Inspect: each is a whole evaluation with a sandbox, a bridge and a log."""

import base64
import os
import subprocess
import tarfile
import time
from pathlib import Path

import anyio
import pytest
from conftest import only_sample
from inspect_ai import Task, eval
from inspect_ai.agent import Agent, AgentState, agent, run
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ChatMessageSystem, ChatMessageUser, ContentImage, ContentText, ModelOutput, get_model
from inspect_ai.scorer import includes
from inspect_ai.util import registry_create

from delta_inspect import delta

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def call(tool: str, **arguments) -> ModelOutput:
    return ModelOutput.for_tool_call("mockllm/model", tool, arguments)


def evaluate(solver: Agent, log_dir: Path, answer, samples: list[Sample] | None = None, **options) -> EvalLog:
    """The log of a task. `answer` is the outputs of its model in turn, or a function of its messages."""
    dataset = samples or [Sample("What is it?", target="42")]
    task = Task(dataset=dataset, solver=solver, scorer=includes(), sandbox="local")
    if isinstance(answer, list):
        outputs = answer
    else:
        outputs = lambda messages, tools, tool_choice, config: answer(messages)  # noqa: E731
    model = get_model("mockllm/model", custom_outputs=outputs)
    [log] = eval(task, model=model, display="none", log_dir=str(log_dir), max_samples=len(dataset), **options)
    return log


def test_the_result_is_the_completion_and_the_calls_are_in_the_log(program, agent_dir, tmp_path):
    look = "echo 41 > n; cat n; ls -A /tmp/delta-*/one-tool; cat /tmp/delta-*/one-tool/.env; env"
    outputs = [call("sh", script=look), call("own"), call("finish", result="it is 42")]
    # Found by its name, as by `--solver delta_inspect/delta`.
    solver = registry_create("agent", "delta_inspect/delta", agent_dir=str(agent_dir), upload=program)
    log = evaluate(solver, tmp_path, outputs)
    sample = only_sample(log)
    assert log.status == "success", log.error
    assert sample.output.completion == "it is 42"
    assert sample.scores["includes"].value == "C"
    roles = [message.role for message in sample.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert "You answer with a call." in sample.messages[0].text
    assert sample.messages[3].text.startswith("41\n") and "own tool" in sample.messages[5].text
    assert "agent.yaml" in sample.messages[3].text and "sk-of-the-host" not in sample.messages[3].text
    calls = [event for event in sample.events if event.event == "model"]
    assert len(calls) == 3 and {tool.name for tool in calls[0].tools} >= {"sh", "own", "finish"}
    kept = sample.store["DeltaRun:one-tool:result"]
    assert (kept["status"], kept["metrics"]["iterations"]) == ("COMPLETED", 3)


@pytest.mark.parametrize("provider", ["responses", "anthropic", "gemini"])
def test_every_wire_form_passes_the_bridge(provider, program, agent_dir, tmp_path):
    with (agent_dir / "agent.yaml").open("a") as file:
        file.write("finish:\n  schema: {type: object, properties: {answer: {type: integer}}, required: [answer]}\n")
    outputs = [call("sh", script="printf '%s' 6x7"), call("finish", answer=42)]
    sample = only_sample(evaluate(delta(str(agent_dir), program=program, provider=provider), tmp_path, outputs))
    assert sample.error is None and sample.output.completion == '{"answer": 42}'
    assert "6x7" in next(message.text for message in sample.messages if message.role == "tool")


def test_a_second_call_in_a_sample_continues_the_run(program, agent_dir, tmp_path):
    @agent
    def twice() -> Agent:
        worker = delta(str(agent_dir), program=program, save=str(tmp_path / "runs"))

        async def execute(state: AgentState) -> AgentState:
            state = await run(worker, state)
            assert state.output.completion == "first"
            state.messages.append(ChatMessageUser(content="And now?"))
            return await run(worker, state)

        return execute

    url = "data:image/png;base64," + base64.b64encode(PIXEL).decode()
    user = ChatMessageUser(content=[ContentText(text="What is this?"), ContentImage(image=url)])
    task = Sample([ChatMessageSystem(content="Be brief."), user], target="42")
    outputs = [call("finish", result="first"), call("finish", result="42")]
    sample = only_sample(evaluate(twice(), tmp_path, outputs, [task]))
    assert sample.error is None and sample.output.completion == "42"

    first, second = [event for event in sample.events if event.event == "model"]
    [told] = [message for message in first.input if message.role == "user"]
    assert "Be brief." in told.text and "What is this?" in told.text
    assert any(isinstance(part, ContentImage) for part in told.content)
    assert [message.text for message in second.input if message.role == "user"][-1] == "And now?"

    [packed] = (tmp_path / "runs").iterdir()
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path / "work" / ".delta", filter="data")
    command = [program, "show", packed.name.removesuffix(".tar.gz"), "-w", tmp_path / "work"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Be brief." in shown.stdout and "And now?" in shown.stdout


def test_samples_at_once_and_what_is_scored(program, agent_dir, tmp_path):
    def answer(messages) -> ModelOutput:
        task = next(message.text for message in messages if message.role == "user").strip()
        if task == "never end":
            return call("sh", script="true")
        if task == "ask":
            return call("ask_human", prompt="Which one?")
        return call("finish", result=f"answer {task}")

    tasks = ["one", "never end", "ask"]
    samples = [Sample(task, id=task, target=f"answer {task}") for task in tasks]
    log = evaluate(delta(str(agent_dir), program=program), tmp_path, answer, samples)
    assert log.status == "success", log.error
    found = {sample.id: sample for sample in log.samples}
    scores = {task: sample.scores["includes"].value for task, sample in found.items()}
    assert scores == {"one": "C", "never end": "I", "ask": "I"}
    assert [found[task].output.completion for task in tasks] == ["answer one", "", ""]
    kept = {task: sample.store["DeltaRun:one-tool:result"] for task, sample in found.items()}
    assert kept["never end"]["error"]["type"] == "max_iterations"
    assert kept["ask"]["status"] == "WAITING_FOR_INPUT"


@pytest.mark.parametrize(
    ("broken", "message"),
    [("name: broken\ntols: []\n", "tols"), (None, "no-such-delta")],
    ids=["a mistake in agent.yaml", "no program"],
)
def test_a_failure_is_an_error_of_the_sample(broken, message, program, agent_dir, tmp_path):
    if broken:
        (agent_dir / "agent.yaml").write_text(broken)
    else:
        program = "no-such-delta"
    sample = only_sample(evaluate(delta(str(agent_dir), program=program), tmp_path, []))
    assert sample.error and message in sample.error.message and not sample.scores


def test_what_inspect_cancels_ends_with_its_tools(program, agent_dir, tmp_path):
    # The tool writes its process id and then waits for a fifo that nobody opens.
    waits = f"mkfifo f; echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec cat f"

    @agent
    def cancelled() -> Agent:
        worker = delta(str(agent_dir), program=program, save=str(tmp_path / "runs"))

        async def execute(state: AgentState) -> AgentState:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(worker, state)
                while not (tmp_path / "pid").exists():
                    await anyio.sleep(0.05)
                tasks.cancel_scope.cancel()
            return state

        return execute

    sample = only_sample(evaluate(cancelled(), tmp_path, [call("sh", script=waits)]))
    assert sample.error is None
    process = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}")
    deadline = time.monotonic() + 60
    while process.exists():
        assert time.monotonic() < deadline, "a tool of the run is still alive"
        os.sched_yield()
    assert len(list((tmp_path / "runs").iterdir())) == 1
