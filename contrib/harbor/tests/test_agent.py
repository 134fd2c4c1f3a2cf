"""Trials of Harbor with delta: environment, agent, logs, verifier and result are Harbor's own."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest
from conftest import write_script
from harbor.models.trajectories import Trajectory
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.models.trial.result import TrialResult
from harbor.trial.trial import Trial


def run_trial(tmp_path: Path, task: Path, agent: dict, kwargs: dict) -> tuple[TrialResult, Path]:
    """The result of a trial and its directory of the agent's logs."""
    config = TrialConfig(
        task=TaskConfig(path=task),
        trials_dir=tmp_path / "trials",
        trial_name="trial",
        agent=AgentConfig(import_path="delta_harbor:Delta", kwargs=kwargs, **agent),
        environment=EnvironmentConfig(import_path="local_environment:LocalEnvironment"),
    )

    async def run() -> TrialResult:
        return await (await Trial.create(config)).run()

    return asyncio.run(run()), tmp_path / "trials" / "trial" / "agent"


def test_a_trial_is_run_verified_and_has_its_trajectory(program, agent_dir, task, tmp_path):
    result, logs = run_trial(tmp_path, task, {}, {"agent_dir": str(agent_dir), "program": str(program)})
    assert result.exception_info is None, result.exception_info
    # The verifier also finds that nothing of delta's is in the workspace.
    assert result.verifier_result.rewards == {"reward": 1}
    assert result.agent_info.name == "delta" and result.agent_info.version[0].isdigit()
    trajectory = Trajectory.model_validate_json((logs / "trajectory.json").read_text())
    assert trajectory.agent.name == "one-tool"
    user = next(step for step in trajectory.steps if step.source == "user")
    assert user.message == "Write 42 into answer.txt; it's \"easy\" & $HOME stays."
    [call] = [call for step in trajectory.steps for call in step.tool_calls or []]
    assert (call.function_name, call.arguments) == ("sh", {"script": "printf 42 > answer.txt"})
    assert result.agent_result.metadata["status"] == "COMPLETED"
    assert not list((tmp_path / "trials" / "trial" / "root" / "tmp").glob("delta-*/one-tool/.env"))

    # The copy of the run is whole: delta replays it.
    command = [program, "replay", result.agent_result.metadata["run_id"], "-w", logs / "delta"]
    replayed = subprocess.run(command, capture_output=True, text=True)
    assert replayed.returncode == 0, replayed.stderr


def test_the_model_of_harbor_gets_the_requests_and_the_key(program, agent_dir, task, endpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-evaluation")
    agent = {"model_name": "openai/some-model", "base_url": endpoint.url}
    result, _ = run_trial(tmp_path, task, agent, {"agent_dir": str(agent_dir), "program": str(program)})
    assert result.exception_info is None, result.exception_info
    assert result.verifier_result.rewards == {"reward": 1}
    assert [request["model"] for request in endpoint.requests] == ["some-model"] * 2
    assert endpoint.keys == ["Bearer sk-of-the-evaluation"] * 2
    totals = result.agent_result
    assert (totals.n_input_tokens, totals.n_output_tokens) == (200, 20)


def test_an_unfinished_task_is_verified_and_a_failure_is_an_error(program, agent_dir, task, tmp_path):
    kwargs = {"agent_dir": str(agent_dir), "program": str(program), "options": "--max-iterations 1"}
    result, _ = run_trial(tmp_path, task, {}, kwargs)
    assert result.exception_info is None and result.verifier_result.rewards == {"reward": 1}
    assert result.agent_result.metadata["error"] == "max_iterations"

    (agent_dir / "agent.yaml").write_text("name: broken\ntols: []\n")
    result, _ = run_trial(tmp_path / "second", task, {}, kwargs)
    assert "config" in result.exception_info.exception_message
    assert "tols" in result.exception_info.exception_message


def test_a_timeout_stops_the_run_and_keeps_its_trajectory(program, agent_dir, task, tmp_path):
    # The tool waits for a fifo that nobody opens.
    write_script(agent_dir, [{"tool": "sh", "args": {"script": "mkfifo f; echo $$ > pid; exec cat f"}}], "never")
    kwargs = {"agent_dir": str(agent_dir), "program": str(program)}
    result, logs = run_trial(tmp_path, task, {"override_timeout_sec": 15}, kwargs)
    assert result.exception_info.exception_type == "AgentTimeoutError"
    pid = (tmp_path / "trials" / "trial" / "root" / "app" / "pid").read_text().strip()
    assert not Path(f"/proc/{pid}").exists()
    trajectory = json.loads((logs / "trajectory.json").read_text())
    assert trajectory["extra"]["status"] == "INTERRUPTED"


def test_an_image_without_the_program_is_an_error(agent_dir, task, tmp_path):
    result, _ = run_trial(tmp_path, task, {}, {"agent_dir": str(agent_dir)})
    assert "--ak program=FILE" in result.exception_info.exception_message


def test_unknown_options_are_refused(agent_dir, task, tmp_path):
    with pytest.raises(ValueError, match="agent_dirr"):
        run_trial(tmp_path, task, {}, {"agent_dirr": str(agent_dir)})
