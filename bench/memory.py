"""The Sharding Memory with 10,000 events of one experiment among 50,000: its pages, and events written per second.

Pages are whole requests, from the address to the HTML; the processor's time is about what one takes where nothing else
runs.  The events are those of answers of a language model, with
prompts and results of the size that real ones have; each is appended as an answer's worker does it, committed one by
one.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from typing import Any

import numpy as np

from bench.retrieval import database, timed

EVENTS, OTHERS = 10_000, 40_000
AIM_PAGE_S = 0.150
WRITERS = 8


def step(number: int, words: list[str]) -> tuple[str, dict[str, Any]]:
    """Kind and data of the n-th step of a long conversation: of eight, one request, one response, three tools."""
    thread, message, place = 1 + number // 400, 1 + number // 8, number % 8
    where = {"thread": thread, "message": message, "turn": 1 + place // 4}
    named = words[number % len(words)]
    if place == 0:
        text = " ".join(words[(number + i) % len(words)] for i in range(900))
        messages = [{"role": "system", "text": text}, {"role": "user", "text": f"Why is {named} slow?"}]
        asked = {"attempt": 1, "provider": "openai", "model": f"model-{thread % 3}", "key": "0" * 64, "since": 0}
        return "model_request", {**where, **asked, "messages": messages, "tools": words[:18]}
    if place == 1:
        call = {"id": "c", "name": "ops", "arguments": f'{{"family": "{named}"}}'}
        said = {"role": "assistant", "text": "", "tool_calls": [call]}
        usage = {"tokens_in": 5200, "tokens_out": 80, "estimated": False}
        return "model_response", {**where, "said": said, "finish": "tool_calls", "usage": usage, "model": "m"}
    if place == 7:
        return "final", {**where, "answer": f"{named} is bound by HBM.", "source": "model", "turns": 2}
    if place % 2 == 0:
        return "tool_call", {**where, "call": {"id": "c", "name": "ops", "arguments": "{}"}, "result_id": f"r{place}"}
    rows = [{"name": f"{words[(number + i) % len(words)]}.{i}", "time_share": 1 / (i + number)} for i in range(60)]
    result = {"ops": rows, "statement": f"{named} takes most of the step"}
    return "tool_result", {**where, "result_id": f"r{place}", "name": "ops", "ok": True, "result": result}


def fill(experiment: Any, count: int) -> None:
    """Rows as `append` makes them, many at once."""
    from experiments.models import Event

    words = [f"{kind}-{size}" for kind in ("fusion", "all-gather", "convolution", "copy") for size in range(60)]
    for start in range(0, count, 1000):
        rows = []
        for number in range(start, min(start + 1000, count)):
            kind, data = step(number, words)
            row = Event(team_id=experiment.team_id, experiment=experiment, kind=kind, actor="coordinator", data=data)
            row.repeat()
            rows.append(row)
        Event.objects.bulk_create(rows)


def written_per_s(experiments: list[Any], writers: int, for_s: float = 5.0) -> float:
    """Events a second that so many threads append at once, each to an experiment of its own."""
    from django.db import connection

    from experiments.services import events

    words = [f"op-{n}" for n in range(240)]
    counts, until = [0] * writers, time.monotonic() + for_s

    def write(who: int) -> None:
        try:
            while time.monotonic() < until:
                kind, data = step(counts[who], words)
                events.append(experiments[who % len(experiments)], kind, "coordinator", data=data)
                counts[who] += 1
        finally:
            connection.close()

    threads = [threading.Thread(target=write, args=(who,)) for who in range(writers)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.monotonic() - began)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The Sharding Memory with many events.")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--others", type=int, default=OTHERS)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args(arguments)
    os.environ |= {"ASAP_LOG_LEVEL": "ERROR", "ASAP_HASHED_STATIC": "0"}
    with database():
        from django.db import connection
        from django.test import Client

        from accounts.services import first_administrator
        from experiments.models import Event, Experiment

        user = first_administrator()
        team = user.memberships.get().team
        made = [Experiment.objects.create(team=team, name=f"long history {n}") for n in range(1 + WRITERS)]
        fill(made[0], options.events)
        for other in made[1:]:
            fill(other, options.others // WRITERS)
        with connection.cursor() as cursor:
            cursor.execute("vacuum analyze experiments_event")
        keys = list(made[0].events.order_by("pk").values_list("pk", flat=True))
        middle = keys[len(keys) // 2]
        print(f"{len(keys):,} events of one experiment among {Event.objects.count():,}; aim {AIM_PAGE_S * 1e3:.0f} ms")
        client = Client(HTTP_HOST="localhost")
        client.force_login(user)
        address = f"/experiments/{made[0].pk}/memory/"
        pages = {
            "first page": "", "newest page": "?end=1", "a page in the middle": f"?after={middle}",
            "at an event": f"?at={middle}", "tools": "?kind=tool", "a conversation": "?thread=9",
            "a model": "?model=model-1&kind=model", "a frequent word": "?q=fusion",
            "three words": "?q=all-gather-17+hbm",
            "a rare word": "?q=overlooked", "a word, newest": "?q=convolution&end=1",
            "the data of an event": f"{middle}/data/",
        }  # fmt: skip
        print(f"{'':28}{'median':>12}{'p95':>12}{'processor':>12}{'p95':>12}")

        def page(query: str) -> None:
            assert client.get(address + query).status_code == 200

        for name, query in pages.items():
            timing = timed([query] * options.rounds, page)
            slow = float(np.percentile(timing.processor_s, 95)) >= AIM_PAGE_S
            print(f"  {name:26}{timing}{'   over the aim' if slow else ''}", flush=True)
        print("events written, each committed by itself")
        for writers in (1, WRITERS):
            rate = written_per_s(made[1:], writers)
            print(f"  {writers} writer{'s' if writers > 1 else ' '}{rate:>27,.0f} a second", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
