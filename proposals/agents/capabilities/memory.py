"""Memory per chip: peak and headroom, what fills it, whether another configuration fits, what would make room."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from agent.tools import NoArguments, ToolError
from proposals import facts
from proposals.agents import words
from proposals.agents.capabilities.capability import capability
from proposals.agents.capabilities.common import (
    Configured,
    Row,
    board,
    get,
    meant,
    memory_table,
    name_of,
    priced_table,
    unknown_facts,
)
from proposals.agents.capabilities.desk import Answer, Desk
from proposals.agents.conversation import Said


@capability(
    "Peak memory and headroom",
    "How much memory is used per chip and how much is free?",
    "What is the peak HBM usage?",
    "How close are we to running out of memory?",
    "How much headroom do the proposals leave?",
)
def memory(desk: Desk, given: NoArguments) -> Answer:
    """Measured peak per chip, and memory of the current configuration and of the proposals, computed."""
    yield from _measured(desk)
    rows, ran, data = yield from board(desk)
    known = [row for row in rows if row.get("hbm_per_chip_bytes")]
    if not known:
        unknown = data.get("not_known", ())
        yield from desk.say(f"What the proposals need cannot be computed: {facts.not_known(unknown)}.")
        yield from unknown_facts(desk, unknown)
        return
    lines = [
        [f"{name_of(row)}, {words.configuration(row)}", words.memory(row), words.size(row["memory_headroom_bytes"])]
        for row in known
    ]
    if ran.get("hbm_per_chip_bytes"):
        lines.insert(0, ["current", words.memory(ran), words.size(ran["memory_headroom_bytes"])])
    yield from desk.table(["Per chip, computed", "Memory", "Headroom"], lines)


def _measured(desk: Desk) -> Answer:
    data = yield from get(desk, "kpis")
    held = data.get("memory") or {}
    if held.get("peak_bytes"):
        of = f" of {words.size(held['capacity_bytes'])}" if held.get("capacity_bytes") else ""
        yield from desk.say(f"Measured peak: **{words.size(held['peak_bytes'])}**{of} per chip.")
    else:
        why = (
            "the profile has no memory events" if not data.get("profile") else "there is no profile, and none was given"
        )
        yield from desk.say(f"The peak memory of this run was not measured: {why}.")


@capability(
    "What fills the memory",
    "What sets the peak memory?",
    "How much memory do weights, optimizer state, gradients and activations take?",
    "Which part of the memory is largest?",
    "Do the activations or the parameters dominate HBM?",
)
def memory_parts(desk: Desk, given: Configured) -> Answer:
    """Memory per chip by parts (weights, optimizer state, gradients, activations) of a configuration, computed."""
    row = yield from _legality(desk, given)
    if not given.named:
        yield from _measured(desk)
    if not row.get("hbm_per_chip_bytes"):
        yield from desk.say(f"Its parts cannot be computed: {facts.not_known(row.get('not_known', ()))}.")
        yield from unknown_facts(desk, row.get("not_known", ()))
        return
    yield from desk.say(f"{_subject(given, row)}:")
    yield from memory_table(desk, row)


def _legality(desk: Desk, given: Configured) -> Generator[Said, None, Row]:
    found = yield from meant(desk, given)
    return (yield from get(desk, "legality", **found[0]))


def _subject(given: Configured, row: Row) -> str:
    if not given.named:
        return f"The current configuration, {words.mesh(row)}"
    return f"Proposal {given.proposal}" if given == Configured(proposal=given.proposal) else words.configuration(row)


@capability(
    "Does it fit in memory",
    "Does this configuration fit in memory?",
    "Would it still fit without remat?",
    "Will this batch size run out of memory?",
    "Does it fit with another optimizer or precision?",
    "Is there enough HBM for a longer sequence?",
)
def fits(desk: Desk, given: Configured) -> Answer:
    """Whether a configuration fits per chip: another mesh, batch, sequence length, remat, precision, optimizer."""
    row = yield from _legality(desk, given)
    name, can = _subject(given, row), row.get("fits")
    if can is None:
        yield from desk.say(
            f"{name}: whether it fits cannot be computed, because {facts.not_known(row.get('not_known', ()))}."
        )
        yield from unknown_facts(desk, row.get("not_known", ()))
        return
    room = row["memory_headroom_bytes"]
    verdict = (
        f"**fits**, with {words.size(room)} of headroom" if can else f"**does not fit**, {words.size(-room)} too much"
    )
    yield from desk.say(f"{name} {verdict}: {words.memory(row)} per chip, computed.")
    others = [item for item in row.get("violations", ()) if item["rule"] != "memory"]
    if others:
        yield from desk.say(f"Memory aside, it is not legal: {others[0]['reason']}")
    yield from memory_table(desk, row)
    if not given.named:
        yield from _measured(desk)


@capability(
    "Largest batch that fits",
    "What is the biggest batch size that fits in memory?",
    "How far can I increase the batch before it runs out of memory?",
    "What is the maximum micro batch per device?",
)
def largest_batch(desk: Desk, given: NoArguments) -> Answer:
    """The global batch in powers of two around the current one: memory, step time per token, and which fit."""
    data = yield from get(desk, "vary", key="global_batch")
    rows = [row for row in data["rows"] if row.get("hbm_per_chip_bytes")]
    if not rows:
        yield from desk.say("Memory cannot be computed while facts are missing.")
        run = yield from get(desk, "run")
        yield from unknown_facts(desk, run.get("not_known", ()))
        return
    fitting = [row for row in rows if (row.get("memory_headroom_bytes") or -1) >= 0 and row.get("may_run")]
    if fitting:
        largest = max(fitting, key=lambda row: int(row["value"]))
        more = int(largest["value"]) < max(int(row["value"]) for row in rows)
        yield from desk.say(
            f"Of the batches tried the largest that fits is **{int(largest['value']):,}**, "
            f"{words.memory(largest)} per chip" + ("." if more else "; larger ones were not tried.")
        )
    else:
        yield from desk.say("No batch that was tried fits.")
    yield from priced_table(desk, rows, data["what_runs"], "Global batch", [f"{int(row['value']):,}" for row in rows])


@capability(
    "What would make room in memory",
    "Why does this run out of memory?",
    "I get an OOM, what can I do?",
    "How can I reduce the memory footprint?",
    "What frees the most memory per chip?",
)
def make_room(desk: Desk, given: Configured) -> Answer:
    """What fills a configuration's memory, and what remat, sharding, micro-batches and optimizer would free."""
    row = yield from _legality(desk, given)
    if not row.get("hbm_per_chip_bytes"):
        yield from _measured(desk)
        yield from desk.say(f"What it needs cannot be computed: {facts.not_known(row.get('not_known', ()))}.")
        yield from unknown_facts(desk, row.get("not_known", ()))
        return
    yield from desk.say(f"{_subject(given, row)} needs {words.memory(row)} per chip, computed:")
    yield from memory_table(desk, row)
    base = {"ici": row["mesh"]["ici"], **({"dcn": row["mesh"]["dcn"]} if row["mesh"].get("dcn") else {})}
    config = desk.bench.config.training
    tries: list[dict[str, Any]] = [
        {"remat": "full"},
        {"remat": "offload"},
        {"weight_sharding": "fsdp"},
        {"optimizer": "adafactor"},
    ]
    tries += [{"grad_accum": config.grad_accum * 2}]
    if config.global_batch and config.global_batch % 2 == 0:
        tries.append({"global_batch": config.global_batch // 2})
    lines = []
    for change in tries:
        if all(getattr(config, key) == value for key, value in change.items()):
            continue
        found = yield from desk.look("legality", **base, changes={**row.get("changes", {}), **change})
        if found and found.data.get("hbm_per_chip_bytes"):
            name = words.changes({"changes": change})
            lines.append([name, words.memory(found.data), words.size(found.data["memory_headroom_bytes"])])
    if lines:
        yield from desk.say("With one setting changed:")
        yield from desk.table(["Change", "Memory per chip", "Headroom"], lines)


@capability(
    "Smallest number of chips that fits",
    "What is the smallest number of chips this model fits on?",
    "How few devices could I use?",
    "What is the minimum slice for this training run?",
)
def smallest_fit(desk: Desk, given: NoArguments) -> Answer:
    """The fewest chips (in powers of two) on which the run fits in memory, each count on its best legal mesh."""
    data = yield from get(desk, "chip_counts")
    least = data.get("smallest_that_fits_chips")
    if least is None:
        raise ToolError("It fits on none of the numbers of chips that were tried.")
    yield from desk.say(f"It fits from **{least:,} chips** on, by the memory model.")
    yield from counts_table(desk, data)


def counts_table(desk: Desk, data: Row) -> Answer:
    """Numbers of chips with their best meshes."""
    lines = [
        [
            f"{row['chips']:,}",
            words.mesh(row) if row.get("mesh_text") else str(row.get("reason", "–")),
            words.estimate(row) if row["fits"] else "–",
            words.ratio(row["speedup_per_token_and_chip"])
            if row.get("speedup_per_token_and_chip") and row["fits"]
            else "–",
            words.memory(row) if row.get("hbm_per_chip_bytes") else "–",
            "yes" if row["fits"] else "no",
        ]
        for row in data["rows"][-8:]
    ]
    yield from desk.table(
        ["Chips", "Best mesh", "Step, predicted", "Per token and chip", "Memory per chip", "Fits"], lines
    )
