"""What several capabilities need: fields of their forms, the configuration that is meant, tables of priced ones."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from agent.tools import Arguments, ToolError
from experiments.step_profile import MODEL
from proposals import facts
from proposals.agents import notation, words
from proposals.agents.capabilities.capability import Missing
from proposals.agents.capabilities.desk import Answer, Desk
from proposals.agents.conversation import MeshOffered, Question, Said
from proposals.agents.filling import fill

Row = Mapping[str, Any]
Rows = Sequence[Row]
MeshText = Annotated[
    str, Field(max_length=200, description="Sizes such as fsdp=32, tp=8 or 32x8; an axis left out keeps its size.")
]
Batch = Annotated[int | None, Field(ge=1, le=10**9, description="Global batch: sequences per optimizer step.")]
Length = Annotated[int | None, Field(ge=1, le=10**9, description="Sequence length in tokens.")]
Number = Annotated[int | None, Field(ge=0, le=999, description="Number of a proposal, as on its card.")]
Numbers = Annotated[tuple[int, ...], Field(max_length=6, description="Numbers of proposals, such as 1, 2; empty: all.")]
Remat = Annotated[Literal["", "none", "minimal", "full", "offload"], Field(description="Rematerialisation policy.")]
Precision = Annotated[
    Literal["", "bf16", "fp16", "fp8", "mxfp8", "nvfp4", "int8", "fp32"], Field(description="Precision of the matmuls.")
]
Sharding = Annotated[Literal["", "none", "zero1", "fsdp"], Field(description="How weights and optimizer are sharded.")]
Micro = Annotated[int | None, Field(ge=1, le=10**6, description="Micro-batches per step (gradient accumulation).")]
ChipName = Annotated[str, Field(max_length=40, description="A chip's key, such as v6e or h100.")]
Chips = Annotated[int | None, Field(ge=1, le=8192, description="Number of chips.")]
Axis = Annotated[str, Field(max_length=60, description="A mesh axis by name or role, or dcn; empty: all.")]
Words = Annotated[str, Field(max_length=400, description="In words.")]
#: Training keys by the field of a form that sets them.
SETTINGS = {
    "batch": "global_batch", "seq_len": "seq_len", "micro_batches": "grad_accum", "remat": "remat",
    "precision": "precision", "weight_sharding": "weight_sharding", "optimizer": "optimizer", "xla_flags": "xla_flags",
}  # fmt: skip


class Configured(Arguments):
    """A configuration: the current one, or a proposal's, with what is given changed."""

    proposal: Number = None
    mesh: MeshText = ""
    batch: Batch = None
    seq_len: Length = None
    micro_batches: Micro = None
    remat: Remat = ""
    precision: Precision = ""
    weight_sharding: Sharding = ""
    optimizer: Annotated[str, Field(max_length=20, description="Optimizer, such as adamw or adafactor.")] = ""
    xla_flags: Annotated[tuple[str, ...], Field(max_length=20, description="XLA flags to add.")] = ()

    @property
    def named(self) -> bool:
        """Whether anything but the current configuration is meant."""
        return self != type(self)()


class About(Arguments):
    proposal: Number = None


def get(desk: Desk, name: str, **arguments: Any) -> Generator[Said, None, dict[str, Any]]:
    """What a tool returns.  Raises ToolError with its sentence where it refuses."""
    found = yield from desk.look(name, **arguments)
    if not found:
        raise ToolError(found.error)
    return dict(found.data)


def board(desk: Desk) -> Generator[Said, None, tuple[list[Row], Row, Row]]:
    """The proposals by rank, what ran, and all that the tool `proposals` says."""
    data = yield from get(desk, "proposals")
    return list(data["proposals"]), data["what_runs"], data


def whole(desk: Desk, number: int) -> Generator[Said, None, Row]:
    data = yield from get(desk, "proposals", number=number)
    return dict(data["proposal"])


def meant(desk: Desk, given: Configured) -> Generator[Said, None, list[dict[str, Any]]]:
    """What a form means, as arguments of `predict`: one configuration, or several where sizes leave it open."""
    config = desk.bench.config
    base: Mapping[str, Any] = config.mesh.to_json()
    changes: dict[str, Any] = {}
    if given.proposal:
        row = yield from whole(desk, given.proposal)
        base, changes = row["mesh"], dict(row.get("changes", {}))
    for name, key in SETTINGS.items():
        value = getattr(given, name, None)
        if value not in (None, "", ()):
            changes[key] = [*config.training.xla_flags, *value] if key == "xla_flags" else value
    if not given.mesh:
        return [arguments(base, changes)]
    named = notation.sizes(given.mesh, config.mesh)
    if not named:
        axes = ", ".join(axis for axis, _ in config.mesh.ici)
        raise Missing(f"“{given.mesh[:80]}” names no mesh; write sizes by axis ({axes}), such as {config.mesh.text()}.")
    found = fill(named, base, config.hardware.chips_per_slice, config.mesh)
    if found.problem:
        raise ToolError(found.problem)
    return [arguments(mesh, changes) for mesh in found.meshes[:4]]


def arguments(mesh: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    dcn = dict(mesh.get("dcn") or {})
    return {"ici": dict(mesh["ici"]), **({"dcn": dcn} if dcn else {}), "changes": dict(changes)}


def as_arguments(row: Row) -> dict[str, Any]:
    return arguments(row["mesh"], row.get("changes") or {})


def name_of(row: Row) -> str:
    stands = row.get("number") or row.get("stands_as_proposal")
    return f"proposal {stands}" if stands else words.configuration(row)


def priced_table(desk: Desk, rows: Rows, ran: Row, first: str = "Configuration", names: Sequence[str] = ()) -> Answer:
    """Priced configurations side by side, the current one last."""
    memory = any(row.get("hbm_per_chip_bytes") for row in rows)
    lines = []
    for at, row in enumerate(rows):
        broken = row.get("violations")
        speedup = row.get("speedup_per_token")
        shown = speedup and not any(item["rule"] == "chips" for item in broken or ())
        stands = row.get("stands_as_proposal")
        name = names[at] if names else words.configuration(row) + (f" (proposal {stands})" if stands else "")
        lines.append(
            [
                name,
                words.estimate(row) if shown else "–",
                words.ratio(speedup) if shown and speedup else "–",
                words.span(row) if shown else "–",
                words.percent(row["confidence_share"]) if shown and "confidence_share" in row and not broken else "–",
                *([words.memory(row)] if memory else []),
                words.allowed(row) if not row.get("reason") else f"no: {row['reason']}",
            ]
        )
    if ran.get("step_time_s") and not any(row.get("now") for row in rows):
        own = [words.memory(ran)] if memory else []
        lines.append([f"current, {words.mesh(ran)}", f"{words.estimate(ran)} {how(desk)}", "1", "–", "–", *own, "yes"])
    header = [
        first, "Step, predicted", "Per token, predicted", "80 % interval", "Confidence", *(["Memory per "
            "chip"] if memory else []), "Legal",
    ]  # fmt: skip
    yield from desk.table(header, lines)


def memory_table(desk: Desk, row: Row) -> Answer:
    """Memory per chip by parts, computed."""
    held = row.get("hbm_per_chip_bytes")
    if not held or held.get("total") is None:
        if row.get("not_known"):
            yield from desk.say(f"Memory per chip cannot be computed: {facts.not_known(row['not_known'])}.")
        return
    names = {
        "params": "weights",
        "optimizer": "optimizer state",
        "gradients": "gradients",
        "activations": "activations",
    }
    parts = [(names.get(key, key), value) for key, value in held.items() if key not in ("total", "capacity") and value]
    parts.sort(key=lambda item: -item[1])
    yield from desk.table(
        ["Memory per chip, computed", "Size"],
        [*([name, words.size(value)] for name, value in parts), ["total", words.size(held["total"])],
         ["usable HBM", words.size(held["capacity"])]],
    )  # fmt: skip


def offers(rows: Rows, most: int = 3) -> Iterator[MeshOffered]:
    """Configurations that may run, are no proposal yet, and change something."""
    found = 0
    for row in rows:
        ran = (row.get("what_runs") or {}).get("mesh_text")
        same = not row.get("changes") and (row.get("now") or row.get("mesh_text") == ran)
        if row.get("may_run") and not row.get("stands_as_proposal") and row.get("speedup_per_token") and not same:
            found += 1
            if found <= most:
                yield MeshOffered(row["mesh"], row.get("changes", {}), words.configuration(row).replace("`", ""))


def unknown_facts(desk: Desk, names: Sequence[str]) -> Answer:
    """What is not known and would change the answer, with choices that state it."""
    if not names:
        return
    shards = desk.bench.config.mesh.size("replica", "data", "fsdp", "expert")
    choices = {
        "model": tuple(f"The model is {name}" for name in ("llama3.1-8b", "llama3.1-70b", "mixtral-8x7b")),
        "training.global_batch": tuple(f"The global batch is {shards * n}" for n in (1, 4, 16)),
        "training.seq_len": tuple(f"The sequence length is {n}" for n in (2048, 4096, 8192)),
    }
    first = next((name for name in choices if name in names), "")
    yield from desk.say(f"Not known: {facts.in_words(names)}; state it here and the answer is computed with it.")
    if first:
        yield Question(f"What is {facts.in_words([first])}?", choices[first])


def how(desk: Desk) -> str:
    """Whether the step time of the current configuration was measured, or is predicted itself."""
    return "predicted" if desk.bench.profile.basis == MODEL else "measured"


def proof(desk: Desk, row: Row) -> Answer:
    """Whether a measured run stands behind a proposal."""
    keys = [item["key"] for item in row.get("citations", ()) if item.get("source") == "history" and item.get("key")]
    for key in keys:
        found = yield from desk.look("record", id=key)
        if found and found.data.get("outcome") == "faster":
            where = f" on {found.data['chip']}" if found.data.get("chip") else ""
            yield from desk.say(
                f"**Proven elsewhere**: record `{key}`{where}, "
                f"{words.lower_first(str(found.data['effect']).rstrip('.'))}."
            )
            return
    if row.get("kind") != "keep" and (row.get("changes") or not row.get("keeps_the_mesh")):
        yield from desk.say(
            "**No precedent**: no record of a similar measured change is near enough to count as evidence; the "
            "confidence is "
            "the calibrated model's alone."
        )


def which(desk: Desk, given: About | Configured) -> int:
    return given.proposal or 1
