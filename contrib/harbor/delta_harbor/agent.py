"""The agent: copies delta and an agent directory into the environment, runs it, and hands over its trajectory."""

import asyncio
import json
import re
import secrets
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import Any, override

from harbor.agents.agent_auth_resolution import ModelConnectionSpec, ProviderAccess
from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.installed.base import (
    ApiError,
    BaseInstalledAgent,
    NonZeroAgentExitCodeError,
    with_prompt_template,
)
from harbor.agents.options import InstalledAgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from harbor.models.model_api_format import ModelApiFormat
from pydantic import Field

from delta_harbor.model import KEY_VARIABLE, ModelArguments, model_arguments

# Keys belong to the host, runs and sessions to the workspace that they worked in.
NOT_COPIED = shutil.ignore_patterns(".env", ".delta", ".sessions", ".git", "workspaces", "__pycache__")

# Where an uploaded program is; the image's own is found in PATH.
INSTALLED = "/usr/local/bin/delta"

# Errors of a RunResult that say something about the agent or the model, not about the machine: the trial is verified.
OUTCOMES = {
    "content_filter",
    "context_length",
    "empty_response",
    "ended_by_hook",
    "length",
    "limit",
    "loop",
    "max_iterations",
    "refusal",
    "text_call",
}


class DeltaOptions(InstalledAgentOptions):
    """Options of the agent, each `--ak NAME=VALUE` on Harbor's command line."""

    agent_dir: Path | None = Field(
        default=None, description="Agent directory on the host; delta's built-in agent if there is none."
    )
    program: Path | None = Field(
        default=None, description="Program `delta` on the host, for images that have none."
    )
    options: list[str] | str = Field(
        default=[], description="More options of `delta run`, as a list or as words for a shell."
    )


class Delta(BaseInstalledAgent):
    """delta as an agent of Harbor.

    The run works in the environment's working directory, which gets no file of delta's: runs are in a directory of
    their own, of which the logs of the trial get a copy, with the trajectory in ATIF.
    """

    capabilities = AgentCapabilities(atif=True, base_url=True, resume=True)
    options_model = DeltaOptions
    options: DeltaOptions

    MODEL_CONNECTION = ModelConnectionSpec(
        supported_api_formats=[
            ModelApiFormat.OPENAI_CHAT_COMPLETIONS,
            ModelApiFormat.OPENAI_RESPONSES,
            ModelApiFormat.ANTHROPIC_MESSAGES,
            ModelApiFormat.GOOGLE_GENERATE_CONTENT,
        ],
        agent_provider_access=ProviderAccess(
            api_key_candidate_names=[KEY_VARIABLE], base_url_candidate_names=["DELTA_BASE_URL"]
        ),
        api_key_destination_names={"default": KEY_VARIABLE},
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._home = ""
        self._agent = ""
        self._run_id = ""

    @staticmethod
    @override
    def name() -> str:
        return "delta"

    @override
    def get_version_command(self) -> str:
        return "delta --version"

    @override
    def parse_version(self, stdout: str) -> str:
        """The number in `delta 1.2.3`."""
        found = re.search(r"\d+\.\d+\.\d+\S*", stdout)
        return found.group() if found else stdout.strip()

    @override
    async def install(self, environment: BaseEnvironment) -> None:
        """Copies the program to /usr/local/bin, or finds it in the image."""
        if self.options.program is None:
            if not await self.is_requested_version_installed(environment):
                raise RuntimeError(
                    f"the image has no delta {self._version or ''}; `--ak program=FILE` copies one there"
                )
            return
        await environment.upload_file(self.options.program, INSTALLED)
        await self.exec_as_root(environment, f"chmod 755 {INSTALLED}")

    @override
    async def configure(self, environment: BaseEnvironment) -> None:
        """Copies the agent directory to a place outside of the workspace."""
        made = await self.exec_as_agent(environment, "mktemp -d /tmp/delta-XXXXXXXX")
        self._home = made.stdout.strip()
        if self.options.agent_dir is None:
            return
        self._agent = f"{self._home}/{self.options.agent_dir.resolve().name}"
        with tempfile.TemporaryDirectory() as place:
            copy = Path(place) / "agent"
            shutil.copytree(self.options.agent_dir, copy, ignore=NOT_COPIED, symlinks=True)
            await environment.upload_dir(copy, self._agent)
        await self.exec_as_root(environment, f"chmod -R a+rX {shlex.quote(self._agent)}")

    @with_prompt_template
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Runs delta until it ends or Harbor cancels it; both ways the logs get the run and its trajectory.

        Raises:
            ApiError: A call of the model failed.
            NonZeroAgentExitCodeError: The run failed for another reason that says nothing about the agent.
        """
        is_continued = self._resume and bool(self._run_id)
        if not is_continued:
            self._run_id = f"harbor_{secrets.token_hex(6)}"
        model = self._model_arguments()
        task = f"{self._home}/instruction.md"
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".md") as file:
            file.write(instruction)
            file.flush()
            await environment.upload_file(file.name, task)
        await self.exec_as_root(environment, f"chmod a+r {shlex.quote(task)}")
        command = self._command(is_continued, model)
        logs = shlex.quote(self.environment_logs_dir.as_posix())
        line = f"mkdir -p {logs}; {command} < {shlex.quote(task)} > {logs}/result.json 2> {logs}/delta.log"
        try:
            await environment.exec(line, env=dict(model.env))
        finally:
            # wait_for() waits for this when the trial has a timeout: the run is stopped, and exported as it is.
            await asyncio.shield(self._collect(environment))
        self._check_result(await environment.exec(f"cat {logs}/result.json; tail -n 5 {logs}/delta.log >&2"))

    def _model_arguments(self) -> ModelArguments:
        connection = self.model_connection
        address = None
        if connection.provider not in {None, "openai", "anthropic", "gemini", "google"}:
            address = self.MODEL_CONNECTION.default_base_url(
                connection.provider, connection.model_api_format or ModelApiFormat.OPENAI_CHAT_COMPLETIONS
            )
        return model_arguments(self.model_name, connection, address)

    def _command(self, is_continued: bool, model: ModelArguments) -> str:
        """The command that starts or continues the run, for a shell, with the message on its standard input."""
        words = ["delta", "--runs-dir", f"{self._home}/runs"]
        if is_continued:
            words += ["continue", self._run_id]
        else:
            words += ["run", "--run-id", self._run_id] + (["--agent", self._agent] if self._agent else [])
        more = self.options.options
        words += ["-w", ".", "--format", "json", "--no-interactive", *model.options]
        words += shlex.split(more) if isinstance(more, str) else more
        return shlex.join([*words, "-m", "-"])

    async def _collect(self, environment: BaseEnvironment) -> None:
        """Stops what still runs, and puts the trajectory and the run directory into the logs."""
        delta = shlex.join(["delta", "--runs-dir", f"{self._home}/runs"])
        logs = shlex.quote(self.environment_logs_dir.as_posix())
        commands = [
            f"{delta} stop {self._run_id} -w .",
            f"{delta} export {self._run_id} -w . --to atif -o {logs}/trajectory.json",
            # One workspace has one directory there, whose copy is a workspace for `delta show -w`.
            f"mkdir -p {logs}/delta; cp -R {shlex.quote(self._home)}/runs/*/. {logs}/delta",
        ]
        result = await environment.exec("; ".join(f"{command} 2>&1" for command in commands))
        self.logger.debug("collected the run", extra={"output": result.stdout})

    def _check_result(self, printed: Any) -> None:
        """Raises if the run failed for a reason that says nothing about the agent, as `run()` has it."""
        try:
            result = json.loads(printed.stdout or "")
        except ValueError:
            raise NonZeroAgentExitCodeError(f"delta printed no result: {printed.stderr or 'nothing'}") from None
        error = result.get("error")
        if not error or error["type"] in OUTCOMES:
            return
        message = f"{error['type']}: {error['message']}"
        raise ApiError(message) if error["type"] == "llm" else NonZeroAgentExitCodeError(message)

    @override
    def populate_context_post_run(self, context: AgentContext) -> None:
        """Tokens and cost, of the run and all runs below it, from the result, else from the trajectory."""
        trajectory = read_json(self.logs_dir / "trajectory.json")
        totals = trajectory.get("final_metrics") or {}
        context.n_input_tokens = totals.get("total_prompt_tokens")
        context.n_cache_tokens = totals.get("total_cached_tokens")
        context.n_output_tokens = totals.get("total_completion_tokens")
        context.cost_usd = totals.get("total_cost_usd")
        result = read_json(self.logs_dir / "result.json")
        metrics = result.get("metrics") or {}
        tree = (metrics.get("tree") or {}).get("usage")
        if tree:
            context.n_input_tokens = tree["input_tokens"]
            context.n_cache_tokens = tree["cached_input_tokens"]
            context.n_output_tokens = tree["output_tokens"]
            context.cost_usd = tree["total_cost_usd"]
        context.metadata = {
            "run_id": self._run_id,
            "status": result.get("status"),
            "error": (result.get("error") or {}).get("type"),
            "iterations": metrics.get("iterations"),
        }


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; an empty one if a trial that was cut short left none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
