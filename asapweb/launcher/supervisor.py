"""Keeps the pieces running, and ends them in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from asapweb.launcher.managed_processes import ManagedProcess, last_words
from asapweb.launcher.orphans import end_marked
from asapweb.user_error import UserError
from formatting import limit, plain

PROBE_EVERY_S = 5.0
POLL_S = 0.2


class Supervisor:
    """Starts pieces, waits until they are well, restarts those that end or hang; those started together end
    together, the last first.

    say: prints one line for the user.
    """

    def __init__(self, home: Path, say: Callable[[str], None]) -> None:
        self.home = home
        self.say = say
        self.pieces: list[ManagedProcess] = []
        self.together: list[Sequence[ManagedProcess]] = []

    def start(self, *pieces: ManagedProcess, patience_s: float = 90.0) -> None:
        """Start them together and wait for all; raises UserError with the reason of the first that does not come up.

        One that is killed meanwhile, or falls with one that was, is started again.
        """
        began = deadline_from = time.monotonic()
        disturbed = False
        self.together.append(pieces)
        for piece in pieces:
            self.pieces.append(piece)
            piece.start()
        waiting = list(pieces)
        while waiting:
            for piece in list(waiting):
                # Asked for first: a process that answered and then ended is not well.
                healthy = piece.is_healthy()
                overdue = time.monotonic() - began > 3 * patience_s
                if not piece.is_running and (disturbed or piece.was_killed) and not overdue:
                    disturbed, deadline_from = True, time.monotonic()
                    self._keep(piece)
                elif not piece.is_running:
                    raise UserError(
                        f"{piece.subject} does not start: {last_words(piece.log)}{piece.hint} (log: {piece.log})"
                    )
                elif healthy:
                    piece.last_well = time.monotonic()
                    waiting.remove(piece)
                    self.say(f"  {piece.name:<14} ready in {time.monotonic() - began:4.1f} s")
                elif time.monotonic() - deadline_from > patience_s or overdue:
                    raise UserError(f"{piece.subject} does not answer after {limit(patience_s, 's')}; see {piece.log}")
            if self.keep([piece for piece in self.pieces if piece not in waiting]):
                disturbed, deadline_from = True, time.monotonic()
            if waiting:
                time.sleep(0.05)

    def keep(self, pieces: Sequence[ManagedProcess] | None = None) -> bool:
        """Start again what has ended, of the given pieces or of all; whether there was any."""
        ended = [piece for piece in (self.pieces if pieces is None else pieces) if not piece.is_running]
        for piece in ended:
            self._keep(piece)
        return bool(ended)

    def watch(self, *also: Callable[[], None]) -> None:
        """Run until interrupted; each of `also` is called in every round."""
        probed = time.monotonic()
        while True:
            for look in also:
                look()
            self.keep()
            if time.monotonic() - probed > PROBE_EVERY_S:
                for piece in self.pieces:
                    self._probe(piece)
                probed = time.monotonic()
            time.sleep(POLL_S)

    def _keep(self, piece: ManagedProcess) -> None:
        if piece.process is not None and not piece.is_running:
            code = piece.process.returncode
            how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
            delay = piece.schedule_restart()
            when = "restarting" if delay == 0 else f"restarting in {plain(delay, 's')} (log: {piece.log})"
            self.say(f"{time.strftime('%H:%M:%S')}  {piece.subject} {how}: {when}.")
        if piece.process is None and time.monotonic() >= piece.next_start:
            try:
                piece.start()
            except OSError as error:
                self.say(f"{time.strftime('%H:%M:%S')}  {piece.subject} cannot be started: {error}.")
                piece.schedule_restart()
            except UserError as error:
                self.say(f"{time.strftime('%H:%M:%S')}  {error}")
                piece.schedule_restart()

    def _probe(self, piece: ManagedProcess) -> None:
        if not piece.is_running:
            return
        if piece.is_healthy():
            piece.last_well = time.monotonic()
        elif time.monotonic() - piece.last_well > piece.hung_after_s:
            self.say(f"{time.strftime('%H:%M:%S')}  {piece.subject} does not answer: stopping it.")
            piece.kill()

    def stop(self) -> None:
        """Each within its patience; then whatever still carries our mark."""
        for pieces in reversed(self.together):
            for piece in pieces:
                piece.ask_to_end()
            asked = time.monotonic()
            for piece in pieces:
                while piece.is_running and time.monotonic() < asked + piece.ends_within_s:
                    time.sleep(0.02)
                piece.kill()
                piece.end_leftovers()
        end_marked(self.home, patience_s=2.0)

    def kill(self) -> None:
        for piece in self.pieces:
            piece.kill()
        end_marked(self.home, patience_s=0.0)
