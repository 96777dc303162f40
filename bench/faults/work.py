"""What users do meanwhile, over the REST API; what was accepted is written down, and nothing else counts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx

from experiments.samples.samples import SAMPLES

#: The shipped recording that is read fastest.
SAMPLE = next(sample for sample in SAMPLES if sample.key == "asap-experiment-1")
QUESTIONS = (
    "Why is this step slow?",
    "What would data=8 cost?",
    "Does the first proposal fit in memory?",
    "Which collective is exposed?",
    "How sure are you about the second proposal?",
)
ACCEPTED = (200, 201, 202)
#: So many times what is wanted is sent at most, while more goes wrong.
MOST_TIMES = 3


@dataclass(frozen=True)
class Wanted:
    """How many of each are to be accepted."""

    uploads: int = 200
    answers: int = 200
    requests: int = 100
    documents: int = 50
    imports: int = 50


@dataclass
class Ledger:
    """What the application accepted, by primary key.  seen: ids of events in the order in which a follower got them, by
    experiment.  refused: how often what was sent was not accepted, by what came instead."""

    uploads: dict[int, str] = field(default_factory=dict)
    answers: list[int] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    documents: list[int] = field(default_factory=list)
    imports: dict[int, list[str]] = field(default_factory=dict)
    seen: dict[int, list[int]] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)


class Users:
    """Several users with one token.

    bases: experiments that were ready before anything was killed.  pace_s: between two requests of one user.
    """

    def __init__(self, address: str, token: str, wanted: Wanted, bases: int, pace_s: float) -> None:
        self.wanted = wanted
        self.ledger = Ledger()
        self.bases: list[int] = []
        self.base_count = bases
        self.pace_s = pace_s
        self.numbers: Iterator[int] = count()
        self.lock = threading.Lock()
        self.enough = threading.Event()  # of what goes wrong; until then the users go on
        self.done = threading.Event()
        self.client = httpx.Client(
            base_url=f"{address}/api", headers={"Authorization": f"Token {token}"}, timeout=30,
            limits=httpx.Limits(max_keepalive_connections=0),
        )  # fmt: skip
        self.files = [(path.name, path.read_bytes()) for path in SAMPLE.files]

    def prepare(self, for_s: float) -> None:
        """Upload the experiments that are asked about, and wait until they are ready."""
        self.bases = [key for _ in range(self.base_count) if (key := self.upload()) is not None]
        deadline = time.monotonic() + for_s
        for key in self.bases:
            while (self.get(f"/experiments/{key}/") or {}).get("state") != "ready":
                if time.monotonic() > deadline:
                    raise SystemExit(f"experiment {key} is not ready after {for_s:.0f} s")
                time.sleep(0.3)
            self.ledger.seen[key] = []

    def begin(self) -> list[threading.Thread]:
        ledger, wanted = self.ledger, self.wanted
        jobs: list[tuple[Callable[[int], object], Callable[[], int], int]] = [
            (lambda _: self.upload(), lambda: len(ledger.uploads) - len(self.bases), wanted.uploads),
            (self.ask, lambda: len(ledger.answers), wanted.answers),
            (self.propose, lambda: len(ledger.requests), wanted.requests),
            (lambda _: self.add_document(), lambda: len(ledger.documents), wanted.documents),
            (lambda _: self.import_records(), lambda: len(ledger.imports), wanted.imports),
        ]
        threads = [threading.Thread(target=self._repeat, args=(*job, at), daemon=True) for job in jobs for at in (0, 1)]
        for thread in threads:
            thread.start()
        self.follower = threading.Thread(target=self.follow, daemon=True)
        self.follower.start()
        return threads

    def _repeat(self, do: Callable[[int], object], have: Callable[[], int], wanted: int, at: int) -> None:
        while have() < wanted or (not self.enough.is_set() and have() < MOST_TIMES * wanted):
            do(at)
            time.sleep(self.pace_s)

    def upload(self) -> int | None:
        name = f"upload {next(self.numbers)}"
        files = [("files", (file, content)) for file, content in self.files]
        answer = self.send("/experiments/", files=files, data={"config": SAMPLE.config.read_text(), "name": name})
        if answer is not None:
            self.ledger.uploads[answer["id"]] = name
        return None if answer is None else int(answer["id"])

    def ask(self, at: int) -> int | None:
        """A question in a thread of its own, and wait for the answer as a person does."""
        number = next(self.numbers)
        thread = self.send("/threads/", json={"experiment": self.bases[(number + at) % len(self.bases)]})
        if thread is None:
            return None
        text = QUESTIONS[number % len(QUESTIONS)]
        answer = self.send(f"/threads/{thread['id']}/messages/", json={"text": text})
        if answer is None:
            return None
        self.ledger.answers.append(answer["id"])
        return int(answer["id"])

    def propose(self, at: int) -> int | None:
        """One request at a time is open for an experiment; the next one waits."""
        key = self.bases[next(self.numbers) % len(self.bases)]
        answer = self.send("/plan-requests/", json={"experiment": key, "constraints": {"keep_batch": True}})
        if answer is None:
            return None
        self.ledger.requests.append(answer["id"])
        return int(answer["id"])

    def add_document(self) -> int | None:
        number = next(self.numbers)
        text = "".join(f"# Part {part} of {number}\n\nAll-gather over axis {part} takes time.\n\n" for part in range(5))
        answer = self.send("/knowledge/documents/", files={"file": (f"notes-{number}.md", text.encode())})
        if answer is not None:
            self.ledger.documents.append(answer["id"])
        return None if answer is None else int(answer["id"])

    def import_records(self) -> int | None:
        number = next(self.numbers)
        keys = [f"faults-{number}-{row}" for row in range(3)]
        lines = "\n".join(json.dumps(record(key)) for key in keys)
        answer = self.send("/history/imports/", files={"file": (f"records-{number}.jsonl", lines.encode())})
        if answer is not None:
            self.ledger.imports[answer["id"]] = keys
        return None if answer is None else int(answer["id"])

    def follow(self) -> None:
        """Read each experiment's events as they come, from the last one on, as the live pages do."""
        while not self.done.wait(0.1):
            self.read_on()

    def read_on(self) -> None:
        for key, seen in self.ledger.seen.items():
            after = seen[-1] if seen else 0
            for event in self.get(f"/experiments/{key}/events/?after={after}") or []:
                seen.append(event["id"])

    def get(self, path: str) -> Any:
        try:
            answer = self.client.get(path)
            return answer.json() if answer.status_code == 200 else None
        except (httpx.HTTPError, ValueError):
            return None

    def send(self, path: str, **body: Any) -> Any:
        """What it accepted, None where it did not: then it may have been taken all the same, and must end as well."""
        try:
            answer = self.client.post(path, **body)
            if answer.status_code in ACCEPTED:
                return answer.json()
            why = f"{path.strip('/').split('/')[0]} {answer.status_code}"
            if answer.status_code >= 500:
                why += f" {answer.text[:120]}"
        except (httpx.HTTPError, ValueError) as error:
            why = type(error).__name__
        with self.lock:
            self.ledger.refused[why] = self.ledger.refused.get(why, 0) + 1
        return None


def record(key: str) -> dict[str, Any]:
    """A record as the import takes it: the least that is one."""
    before, after = {"kpis": {"step_time_s": 1.1}}, {"kpis": {"step_time_s": 1.0}}
    return {
        "id": key, "title": key, "change": "Moved the batch to data", "changes": ["mesh"], "before": before,
        "after": after, "outcome": "faster", "speedup": 1.1, "measure": "step time", "chip": "v5p", "chips": 4,
        "source": "bench.faults",
    }  # fmt: skip
