"""Under whose account programs of a backend run and the files of a launch lie."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs import child
from jobs.child_environment import Need, environment
from launches.backends.base import BackendError, JobSpec, environment_text

_FILES_S = 60
_UNPACK = 'umask 077 && mkdir -p -- "$1" && tar -x --no-same-owner -C "$1" -f -'
_IN_FOLDER = 'cd -- "$1" && shift && exec "$@"'
_INTO_LOG = 'umask 077 && cd -- "$1" && shift && exec "$@" >>output.log 2>&1'


@dataclass(frozen=True)
class Account:
    """An account of this machine.

    prefix: words that run a command as another account, such as `sudo -n -u asap-vision --`; empty: our own account.
    needs: variables of ours that its commands see.
    """

    needs: Need
    prefix: tuple[str, ...] = ()

    def run(
        self, command: Sequence[str], *, folder: Path | None = None, given: bytes = b"", timeout_s: float = _FILES_S
    ) -> child.Done[bytes]:
        """Run a command to its end, in `folder`.  Raises BackendError where it does not start or takes too long."""
        inside = ["sh", "-c", _IN_FOLDER, "sh", str(folder)] if folder is not None else []
        whole = [*self.prefix, *inside, *command]
        try:
            return child.run(whole, environment(self.needs), given=given, timeout_s=timeout_s)
        except (OSError, child.TimeoutExpired) as error:
            raise BackendError(f"{command[0]} did not answer: {str(error)[:150]}", passing=True) from error

    def start(self, command: Sequence[str], folder: Path) -> child.Process:
        """Start a command in `folder` that outlives us, and writes into `output.log` there."""
        inside = ["sh", "-c", _INTO_LOG, "sh", str(folder)]
        try:
            return child.launch([*self.prefix, *inside, *command], environment(self.needs))
        except OSError as error:
            raise BackendError(f"The command cannot be started: {error.strerror or error}.") from error

    def write_bundle(self, folder: Path, spec: JobSpec, **more: str) -> None:
        """Write the files of a launch, and `more` of them, into a folder that the account alone can enter."""
        self.write(folder, {**spec.files, "secret.env": environment_text(spec), **more})

    def write(self, folder: Path, files: Mapping[str, str]) -> None:
        """Write `files` (name → text) into a folder that the account alone can enter."""
        done = self.run(["sh", "-c", _UNPACK, "sh", str(folder)], given=_archive(files))
        if done.returncode:
            raise BackendError(f"{folder} cannot be written: {last_line(done.stderr)}.")

    def read(self, path: Path, most_bytes: int = 100_000) -> bytes:
        """Return the end of a file; nothing where there is none."""
        done = self.run(["tail", "-c", str(most_bytes), "--", str(path)])
        return b"" if done.returncode else done.stdout

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, in order; none where there is no folder."""
        done = self.run(["ls", "-A", "--", str(folder)])
        return [] if done.returncode else sorted(done.stdout.decode("utf-8", "replace").splitlines())

    def remove(self, *paths: Path) -> None:
        if paths:
            self.run(["rm", "-f", "--", *map(str, paths)])


def last_line(output: bytes) -> str:
    """Return the last line that says what went wrong, else the last line."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["no message"])[-1][:200]


def _archive(files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as packed:
        for name, text in files.items():
            content = text.encode()
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.mode = 0o700 if name.endswith(".sh") else 0o600
            packed.addfile(info, io.BytesIO(content))
    return buffer.getvalue()
