"""`python -m bench.faults`: 200 uploads, 200 answers, plan requests and imports under faults; `--short` for a few.

Exit status 1 with a line for everything that did not hold.  As root the data folder gets a file system of its own,
which is filled now and then; as another user the disk is left unchanged, and that is reported.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench.faults.chaos import Chaos, settle
from bench.faults.running import Running
from bench.faults.work import Users, Wanted

SHORT = Wanted(uploads=4, answers=8, requests=4, documents=4, imports=4)
DISK_MB, KEPT_MB = 2500, 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few of each, for CI")
    parser.add_argument("--home", type=Path, help="a used data folder to begin with a copy of; default an empty one")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of what happens by chance")
    parser.add_argument("--keep", action="store_true", help="leave the data folder")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leaves nothing running
    with _folder(given.home, keep=given.keep) as (home, own_disk):
        wanted = SHORT if given.short else Wanted()
        if not os.environ.get("OPENAI_BASE_URL"):  # only a language model answers free text
            wanted = replace(wanted, answers=0)
        return _attack(home, wanted, random.Random(given.seed), own_disk, given.short)


def _attack(home: Path, wanted: Wanted, chance: random.Random, own_disk: bool, short: bool) -> int:
    running = Running(home, ASAP_KEEP_FREE_MB=str(KEPT_MB))
    try:
        running.wait_until_ready(300)
        users = Users(running.address, _token(home), wanted, bases=2 if short else 4, pace_s=1.0)
        users.prepare(300)
        began = time.monotonic()
        chaos = Chaos(running, chance, every_s=2.0 if short else 5.0, own_disk=own_disk)
        attack = threading.Thread(target=chaos.run, daemon=True)
        attack.start()
        sending = users.begin()
        chaos.first_round.wait(600)
        users.enough.set()
        for thread in sending:
            thread.join(3600)
        chaos.stopped.set()
        attack.join(120)
        print(f"accepted all after {time.monotonic() - began:.0f} s under {dict(chaos.done)}", flush=True)
        print(f"not accepted: {users.ledger.refused}", flush=True)
        running.wait_until_ready(180)
        return _verdict(home, users, 120 if short else 1800)
    finally:
        running.stop()
        if (leftover := home.parent / "filler").exists():
            leftover.unlink()


def _verdict(home: Path, users: Users, patience_s: float) -> int:
    from django.db import OperationalError, connection

    from bench.faults import checks

    began = time.monotonic()
    settle(home)
    left: dict[str, int] = {"": 1}
    while left and time.monotonic() - began < patience_s:
        try:
            left = checks.still_open()
        except OperationalError:
            connection.close()
        time.sleep(0.5)
    users.done.set()
    users.follower.join()  # two readers would note Events twice
    users.read_on()
    broken = checks.broken(users.ledger)
    if left:
        broken.insert(0, f"not done after {patience_s:.0f} s: {left}")
    print(f"all done {time.monotonic() - began:.0f} s later" if not left else "not all done", flush=True)
    for kind, counts in checks.results(users.ledger).items():
        print(f"  {kind:<14} {', '.join(f'{count} {state}' for state, count in counts.items())}")
    for reason, count in checks.reasons().items():
        print(f"  {count} failed: {reason}")
    for sentence in broken:
        print(f"BROKEN  {sentence}")
    print("nothing lost, nothing twice, no gap, no orphan" if not broken else f"{len(broken)} did not hold", flush=True)
    return 1 if broken else 0


def _token(home: Path) -> str:
    """Of the first administrator.  This process reads the application's database from here on."""
    os.environ |= {"ASAP_HOME": str(home), "DJANGO_SETTINGS_MODULE": "asapweb.settings"}
    import django

    django.setup()
    from django.db import connection
    from knox.models import AuthToken

    from accounts.services import first_administrator

    token: str = AuthToken.objects.create(first_administrator())[1]
    connection.close()
    return token


@contextmanager
def _folder(used: Path | None, *, keep: bool) -> Iterator[tuple[Path, bool]]:
    """A data folder, and whether its disk may be filled."""
    parent = Path(tempfile.mkdtemp(prefix="asap-faults-", dir="/tmp"))
    parent.chmod(0o755)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=0755", "tmpfs", str(parent)]
    own_disk = os.getuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    if not own_disk:
        print("may not mount a file system here: the disk is not filled", flush=True)
    try:
        if used is not None:
            subprocess.run(["cp", "-a", str(used), str(parent / "data")], check=True)
        yield parent / "data", own_disk
    finally:
        if keep:
            print(f"left in {parent}")
        else:
            for _ in range(50):
                if not own_disk or subprocess.run(["umount", str(parent)], capture_output=True).returncode == 0:
                    break
                time.sleep(0.2)
            shutil.rmtree(parent, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
