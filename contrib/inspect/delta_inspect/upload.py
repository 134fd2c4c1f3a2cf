"""What is copied into the sandbox: the agent directory, and the program."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from inspect_ai.util import SandboxEnvironment

# Keys belong to the host, runs and sessions to the workspace that they worked in.
NOT_COPIED = {".env", ".delta", ".sessions", ".git", "workspaces", "__pycache__"}


def files_below(directory: Path) -> Iterator[Path]:
    """The files that are copied, relative to the directory, in the order of their names."""
    for path in sorted(directory.iterdir()):
        if path.name in NOT_COPIED:
            continue
        if path.is_dir():
            yield from (Path(path.name) / below for below in files_below(path))
        else:
            yield Path(path.name)


async def make_directory(sandbox: SandboxEnvironment, user: str | None) -> str:
    """A new directory outside of the workspace, which the agent's own files must not be in."""
    made = await sandbox.exec(["mktemp", "-d", "/tmp/delta-XXXXXXXX"], user=user)
    if not made.success:
        raise RuntimeError(f"could not create a directory in the sandbox: {made.stderr.strip()}")
    return made.stdout.strip()


async def upload_agent(sandbox: SandboxEnvironment, source: Path, target: str) -> None:
    """Copies an agent directory to `target`, with the permission to execute."""
    programs = []
    for file in files_below(source):
        path = f"{target}/{file.as_posix()}"
        await sandbox.write_file(path, (source / file).read_bytes())
        if (source / file).stat().st_mode & 0o111:
            programs.append(path)
    # In the sandbox, write_file() may write as root.
    commands = [f"chmod -R a+rX {shlex.quote(target)}"]
    commands += [f"chmod a+x {shlex.quote(path)}" for path in programs]
    await sandbox.exec(["sh", "-c", "; ".join(commands)])


async def upload_program(sandbox: SandboxEnvironment, source: Path, target: str) -> str:
    """Copies the program `delta` to `target` and returns its path there."""
    path = f"{target}/delta"
    await sandbox.write_file(path, source.read_bytes())
    await sandbox.exec(["chmod", "a+rx", path])
    return path
