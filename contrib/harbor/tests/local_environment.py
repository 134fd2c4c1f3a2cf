"""An environment of Harbor for tests, over processes of this machine in a root directory of their own.

Harbor's own environments need Docker or a service. This one starts each command with `unshare` and `chroot`: the
programs are the machine's, and `/app`, `/logs`, `/tests`, `/tmp` and `/usr/local` are directories of the trial.
"""

import asyncio
import os
import shutil
from pathlib import Path
from typing import override

from harbor.environments.base import BaseEnvironment, ExecResult

SHARED = ["/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/share", "/etc", "/proc", "/dev"]
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
ENTER = """
root=$1 cwd=$2 command=$3; shift 3
for dir; do mkdir -p "$root$dir" && mount --rbind "$dir" "$root$dir" || exit 125; done
exec chroot "$root" /bin/sh -c 'cd "$1" && exec bash -c "$2"' sh "$cwd" "$command"
"""


class LocalEnvironment(BaseEnvironment):
    """See the module."""

    @staticmethod
    @override
    def type() -> str:
        return "local-processes"

    @override
    def _validate_definition(self) -> None:
        pass

    @property
    def root(self) -> Path:
        """The root directory of the environment, next to what Harbor keeps of the trial."""
        return self.trial_paths.trial_dir / "root"

    def path(self, inside: Path | str) -> Path:
        """A path inside, on the host."""
        return self.root / str(inside).lstrip("/")

    @override
    async def start(self, force_build: bool) -> None:
        for name in ["app", "tmp", "usr/local/bin", "logs/agent", "logs/verifier", "logs/artifacts"]:
            (self.root / name).mkdir(parents=True)
        for name, target in LINKS.items():
            (self.root / name).symlink_to(target)

    @override
    async def stop(self, delete: bool) -> None:
        pass

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        self.path(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, self.path(target_path))

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self.path(target_dir), dirs_exist_ok=True, symlinks=True)

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.path(source_path), target_path)

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self.path(source_dir), target_dir, dirs_exist_ok=True)

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        shared = [path for path in SHARED if Path(path).exists()]
        enter = ["sh", "-c", ENTER, "sh", str(self.root), cwd or "/app", command, *shared]
        variables = {"PATH": "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin", "HOME": "/tmp", **(self._merge_env(env) or {})}
        process = await asyncio.create_subprocess_exec(
            "unshare",
            *([] if os.geteuid() == 0 else ["--map-root-user"]),
            "--mount",
            *enter,
            env=variables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        # Like a container's, a command whose caller is cancelled goes on.
        stdout, stderr = await asyncio.wait_for(process.communicate(), timeout_sec)
        return ExecResult(
            stdout=stdout.decode(errors="replace"), stderr=stderr.decode(errors="replace"), return_code=process.returncode
        )
