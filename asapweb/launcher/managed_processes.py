"""One process of the application: how it starts, how one sees that it is well, how it ends."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from asapweb.launcher.orphans import MARK, PIECE_MARK, end_marked
from jobs import child
from jobs.child_environment import EVERYTHING, Need, environment

CODE = Path(__file__).resolve().parent.parent.parent
FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
#: A piece that ran this long before it ended is not in a loop of failures.
STEADY_S = 60.0


def _nothing() -> None:
    pass


def last_words(log: Path) -> str:
    """Return the last line of a log that says what went wrong, else the last line."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()[-50:] if line.strip()]
    except OSError:
        lines = []
    serious = [line for line in lines if any(word in line for word in ("rror", "FATAL", "Fatal", "PANIC"))]
    return (serious or lines or ["it wrote nothing"])[-1][:160]


@dataclass
class ManagedProcess:
    """A process that the launcher keeps running.

    command: without the part that ties its life to ours.  needs: of our variables; all of them for the application
    itself, which works with its secrets.  ends_with: the signal for an orderly end.  is_healthy: asks the process
    itself, not the process table.  hung_after_s: how long it may be unwell before it is started anew.
    niceness: of its processes, for work that no page waits for.
    """

    name: str
    command: Callable[[], list[str]]
    log: Path
    home: Path
    is_healthy: Callable[[], bool]
    environment: Mapping[str, str] = field(default_factory=dict)
    needs: Need = EVERYTHING
    ends_with: signal.Signals = signal.SIGTERM
    dies_with_us: str = "TERM"
    ends_within_s: float = 10.0
    hung_after_s: float = 60.0
    before_start: Callable[[], None] = _nothing
    folder: Path = CODE
    hint: str = ""  # what to do when it does not start
    niceness: int = 0

    process: child.Process | None = None
    started_at: float = 0.0
    failures: int = 0
    next_start: float = 0.0
    last_well: float = 0.0

    def start(self) -> None:
        """Start the process as our child, in a session of its own so that Ctrl-C reaches the launcher only.

        Only ever from the main thread: the kernel ties the child's life to the thread that made it.
        """
        self.before_start()
        marks = {MARK: str(self.home), PIECE_MARK: self.name}
        command = self.command()
        if self.niceness:
            command = ["nice", "-n", str(self.niceness), *command]
        if command[0] != "setpriv":
            command = ["setpriv", "--pdeathsig", self.dies_with_us, "--", *command]
        with self.log.open("ab") as log:
            self.process = child.launch(
                command, environment(self.needs, values={**self.environment, **marks}),
                folder=self.folder, stdout=log, stderr=log,
            )  # fmt: skip
        self.started_at = self.last_well = time.monotonic()

    @property
    def subject(self) -> str:
        """The name as a sentence begins with it: Redis, The worker."""
        return self.name if self.name[0].isupper() else f"The {self.name}"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def was_killed(self) -> bool:
        """It ended by a signal, and not by itself; also while it waits for its next start."""
        return self.process is None or (self.process.returncode or 0) < 0

    def schedule_restart(self) -> float:
        """Note that it ended; returns after how many seconds it starts again."""
        now = time.monotonic()
        self.failures = 0 if now - self.started_at > STEADY_S else self.failures + 1
        self.end_leftovers()
        delay = 0.0 if self.failures <= 1 else min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** (self.failures - 2))
        self.process = None
        self.next_start = now + delay
        return delay

    def ask_to_end(self) -> None:
        self._signal(self.ends_with)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def end_leftovers(self) -> None:
        """End what a killed process left behind: the server's own workers, a converter in the middle of its work."""
        end_marked(self.home, self.name, patience_s=2.0)

    def _signal(self, number: signal.Signals) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(number)
