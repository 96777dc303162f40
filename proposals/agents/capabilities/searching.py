"""Beyond the three proposals: the best candidates, what was rejected, what is legal, launch files, a measured
result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from agent.tools import NoArguments, ToolError
from proposals.agents import words
from proposals.agents.capabilities.capability import capability
from proposals.agents.capabilities.common import (
    About,
    Configured,
    get,
    meant,
    offers,
    which,
    whole,
)
from proposals.agents.capabilities.desk import Answer, Desk


@capability(
    "Best legal candidates",
    "What are the best configurations of all?",
    "Is there anything better than the proposals?",
    "List the top ten candidates of the search.",
    "What is the optimal mesh?",
)
def search(desk: Desk, given: NoArguments) -> Answer:
    """The best of all legal candidates as the ranking has them, within what the conversation holds."""
    data = yield from get(desk, "search", top=8)
    rows = [row for row in data["candidates"] if row.get("speedup_per_token")]
    names = [
        words.configuration(row)
        + (f" (proposal {row['stands_as_proposal']})" if row.get("stands_as_proposal") else "")
        + (" (current)" if row.get("is_what_runs") else "")
        for row in rows
    ]
    lines = [
        [name, words.ratio(row["speedup_per_token"]), words.span(row), words.percent(row["confidence_share"])]
        for name, row in zip(names, rows, strict=True)
    ]
    yield from desk.table(["Configuration", "Per token, predicted", "80 % interval", "Confidence"], lines)
    yield from desk.say("Ranked by gain against uncertainty and against what a change costs to try.")
    yield from offers([{**row, "may_run": not row.get("is_what_runs")} for row in rows], 1)


@capability(
    "Meshes that were rejected",
    "What did you reject and why?",
    "Which meshes are illegal here?",
    "How many configurations were ruled out by memory?",
    "Which rule excludes most candidates?",
)
def rejected(desk: Desk, given: NoArguments) -> Answer:
    """Meshes that were left out, nearest to the current one first, each with the rule that it breaks."""
    data = yield from get(desk, "rejected", top=8)
    rows = data["rows"]
    if not rows:
        raise ToolError("No mesh was rejected.")
    yield from desk.table(
        ["Mesh", "Rule", "Why"], [[words.mesh(row), words.rule(row["rule"]), str(row["reason"])] for row in rows]
    )
    counts = [f"{words.rule(rule)} {count}" for rule, count in data["count_by_rule"].items()]
    yield from desk.say(
        f"Of {data['meshes_considered']:,} meshes considered, by the first rule each broke: {words.listed(counts)}."
    )


@capability(
    "Legal meshes and divisors",
    "What must my batch be divisible by?",
    "Which meshes are legal on this slice?",
    "Which sizes may the tensor axis have?",
    "Is this mesh valid for the topology?",
    "What are the divisibility rules?",
)
def legal(desk: Desk, given: Configured) -> Answer:
    """What the batch must divide by, the model sizes that axes must divide, and whether a mesh is legal."""
    if given.named:
        found = yield from meant(desk, given)
        row = yield from get(desk, "legality", **found[0])
        broken = words.violations(row)
        yield from desk.say(
            f"{words.configuration(row)} is **not legal**: {broken[0]}"
            if broken
            else f"{words.configuration(row)} is **legal**, as far as is known."
        )
        yield from desk.bullets(broken[1:4])
        return
    data = yield from get(desk, "divisors")
    yield from desk.say(
        f"On {words.mesh(data)} the global batch must be a multiple of **{data['batch_must_divide_by']:,}** "
        f"({data['batch_shards']:,} batch shards, {data['grad_accum']:,} micro-batches)."
    )
    if data.get("model_sizes"):
        sizes = [f"{words.rule(name)} {value:,}" for name, value in data["model_sizes"].items()]
        yield from desk.say(f"Axes must divide the model's sizes: {words.listed(sizes)}.")
    rows = yield from get(desk, "rejected", top=1)
    counts = [f"{words.rule(rule)} {count}" for rule, count in rows["count_by_rule"].items()]
    yield from desk.say(
        f"Of {rows['meshes_considered']:,} meshes considered, by the first rule each broke: "
        f"{words.listed(counts) or 'none'}."
    )
    yield from search(desk, NoArguments())


class Launch(About):
    tool: Annotated[str, Field(max_length=20, description="maxtext, jax, axlearn, megatron or yaml.")] = ""


@capability(
    "Launch files",
    "Give me the launch flags for the proposal.",
    "Show the MaxText command line.",
    "How do I configure this in Megatron?",
    "Write the config file for this mesh.",
    "How do I apply proposal 1 in my code?",
)
def launch(desk: Desk, given: Launch) -> Answer:
    """Flags and files that would launch a proposal with MaxText, plain JAX, AXLearn or Megatron-LM, as text to copy."""
    target = {"number": which(desk, given)}
    every = yield from get(desk, "launch_files", **target)
    if not every.get("may_run", True):
        yield from desk.say("It is not legal as it is:", *words.violations(every))
    kinds = [item["kind"] for item in every["files"]]
    kind = next((kind for kind in kinds if given.tool and kind.startswith(given.tool.lower())), kinds[0])
    found = yield from get(desk, "launch_files", **target, kind=kind)
    file = found["files"][0]
    body = (
        f"; nothing is started:\n\n```\n{str(file['text']).strip()}\n```" if file.get("text") else " cannot be written:"
    )
    yield from desk.say(f"`{file['name']}` of proposal {target['number']}{body}")
    yield from desk.bullets([str(note) for note in file.get("notes", ())])
    rest = [f"`{item['name']}`" for item in every["files"] if item["name"] != file["name"]]
    if rest:
        yield from desk.say(f"Also available on the proposal's page: {words.listed(rest)}.")


class Outcome(About):
    step_time_s: Annotated[float | None, Field(gt=0, le=1e6, description="Measured step time in seconds.")] = None


@capability(
    "Your measurement against the prediction",
    "I measured proposal 1 and got a different step time.",
    "We ran it and the step took longer than predicted.",
    "The trial came out slower, what now?",
    "How do I report the measured result?",
)
def result(desk: Desk, given: Outcome) -> Answer:
    """A measured step time of a proposal beside its prediction, and how the measurement is entered so that it
    counts."""
    number = which(desk, given)
    row = yield from whole(desk, number)
    time = row.get("step_time_s")
    if given.step_time_s and isinstance(time, Mapping):
        got = given.step_time_s
        where = "above" if got > time["high80"] else "below" if got < time["low80"] else "within"
        yield from desk.say(
            f"{got:g} s per step, as you state, lies **{where}** the 80 % interval of proposal {number}: "
            f"{words.step(row)} was predicted."
        )
    yield from desk.say(
        f"It counts once the profile of that run is uploaded on the card of proposal {number}; the confidence of "
        f"further proposals is then recalibrated."
    )
