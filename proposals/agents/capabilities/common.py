"""What several capabilities need: fields of their forms, the configuration that is meant, tables of priced ones."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from agent.tools import Arguments, ToolError
from experiments.step_profile import MODEL
from formatting import listed
from perfmodel.config import MeshSizes
from proposals import facts
from proposals.agents import words
from proposals.agents.capabilities.answer_context import Answer, AnswerContext, Returned
from proposals.agents.conversation import MeshOffered, Question, Said
from proposals.agents.priced import Current, Priced, Proposals
from proposals.agents.tools import ModelFreeTools, ModelTools, RetrievalTools
from proposals.agents.tools.retrieval import RecordRow

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


class About(Arguments):
    proposal: Number = None


def get(ctx: AnswerContext, tool: Callable[..., Returned], **arguments: Any) -> Generator[Said, None, Returned]:
    """What a tool returns.  Raises ToolError with its sentence where it refuses."""
    result = yield from ctx.look(tool, **arguments)
    if result.data is None:
        if result.error.startswith(LACKING):
            yield from needs_no_model(ctx, arguments)
        raise ToolError(result.error)
    return result.data


#: How tools refuse what needs facts that are not known.
LACKING = "This cannot be computed:"


def needs_no_model(ctx: AnswerContext, asked: Mapping[str, Any]) -> Answer:
    """What can be said of another chip or precision although the model is not known."""
    precision = (asked.get("changes") or {}).get("precision", "")
    values = {"chip": asked.get("chip") or "", "precision": precision}
    named = {key: value for key, value in values.items() if value}
    row = (yield from ctx.look(ModelFreeTools.without_model, **named)).data
    if not row or not named:
        return
    if (row.chip, row.precision) == (row.own_chip, row.own_precision):
        return
    if precision and not row.natively_supported:
        native = listed(row.native_precisions)
        yield from ctx.say(
            f"**{row.chip} has no native {precision} matmul support**: matmuls run in another precision, so no "
            f"compute time is saved (native: {native})."
        )
    else:
        yield from ctx.say(
            f"{row.chip} in {row.precision} beside {row.own_chip} in {row.own_precision}: peak FLOP/s "
            f"**{words.ratio(row.peak_flops_over_own)}** ({words.flops(row.peak_flops_per_s)}), HBM bandwidth "
            f"**{words.ratio(row.hbm_bandwidth_over_own)}** ({words.rate(row.hbm_bytes_per_s)}), memory "
            f"{words.ratio(row.hbm_over_own)} ({words.size(row.hbm_usable_bytes)} usable)."
        )
    if row.step_share_if_each_part_scaled:
        left, now = row.step_time_if_each_part_scaled_s, row.step_time_s
        much = f"{words.time(left)} instead of {words.time(now)}" if left and now else (
            f"{words.share(row.step_share_if_each_part_scaled)} of the current step time"
        )  # fmt: skip
        yield from ctx.say(
            f"Rough bound: {words.share(row.compute_share or 0.0)} of the step is bound by compute and "
            f"{words.share(row.hbm_share or 0.0)} by HBM bandwidth; if these scaled with the peaks and nothing else "
            f"changed, a step would take {much}. Changes in communication, kernels and efficiency are ignored."
        )
    if row.measured_peak_bytes and row.measured_peak_of_its_hbm_share:
        fits = "would fit" if row.measured_peak_of_its_hbm_share < 1 else "would not fit"
        yield from ctx.say(
            f"The measured peak of {words.size(row.measured_peak_bytes)} {fits}: "
            f"{words.share(row.measured_peak_of_its_hbm_share)} of usable HBM."
        )


def whole(ctx: AnswerContext, number: int) -> Generator[Said, None, Priced]:
    return (yield from get(ctx, ModelTools.proposals, number=number)).proposal


def arguments(mesh: MeshSizes, changes: Mapping[str, Any]) -> dict[str, Any]:
    dcn = dict(mesh.get("dcn") or {})
    return {"ici": dict(mesh["ici"]), **({"dcn": dcn} if dcn else {}), "changes": dict(changes)}


def as_arguments(row: Priced) -> dict[str, Any]:
    return arguments(row.mesh, row.changes)


def name_of(row: Priced) -> str:
    proposal_number = row.number or row.proposal_number
    return f"proposal {proposal_number}" if proposal_number else words.configuration(row)


def priced_table(
    ctx: AnswerContext, rows: Sequence[Priced], ran: Current, first: str = "Configuration", names: Sequence[str] = ()
) -> Answer:
    """Priced configurations side by side, the current one last."""
    memory = any(row.hbm_per_chip_bytes for row in rows)
    lines = []
    for at, row in enumerate(rows):
        shown = row.speedup_per_token and not any(item.rule == "chips" for item in row.violations)
        stands = f" (proposal {row.proposal_number})" if row.proposal_number else ""
        lines.append(
            [
                names[at] if names else words.located(row) + stands,
                words.estimate(row) if shown else "–",
                words.gain(row) if shown else "–",
                words.span(row) if shown else "–",
                words.confidence(row) if shown and not row.violations else "–",
                *([words.memory(row)] if memory else []),
                words.allowed(row) if not row.reason else f"no: {row.reason}",
            ]
        )
    if ran.step_time_s and not any(row.now for row in rows):
        own = [words.memory(ran)] if memory else []
        step = f"{words.current_step(ran, how(ctx))} {how(ctx)}"
        lines.append([f"current, {words.mesh(ran)}", step, "1", "–", "–", *own, "yes"])
    header = [
        first, "Step, predicted", "Per token, predicted", "80 % interval", "Confidence", *(["Memory per "
            "chip"] if memory else []), "Legal",
    ]  # fmt: skip
    yield from ctx.table(header, lines)


def proposals_table(ctx: AnswerContext, data: Proposals) -> Answer:
    """The proposals side by side."""
    names = [f"{row.number}, {words.configuration(row)}" for row in data.proposals]
    yield from priced_table(ctx, data.proposals, data.current, "Proposal", names)


def memory_table(ctx: AnswerContext, row: Priced) -> Answer:
    """Memory per chip by parts, predicted."""
    held = row.hbm_per_chip_bytes
    if not held:
        if row.not_known:
            yield from ctx.say(f"Memory per chip cannot be predicted: {facts.not_known(row.not_known)}.")
        return
    parts = [("weights", held.params), ("optimizer state", held.optimizer), ("gradients", held.gradients),
             ("activations", held.activations)]  # fmt: skip
    known = sorted(((name, value) for name, value in parts if value), key=lambda item: -item[1])
    known += [("total", held.total), ("usable HBM", held.capacity)]
    yield from ctx.table(["Memory per chip, predicted", "Size"], [[name, words.size(value)] for name, value in known])


def offers(rows: Sequence[Priced], most: int = 3) -> Iterator[MeshOffered]:
    """Configurations that may run, are no proposal yet, and change something."""
    offered = 0
    for row in rows:
        same = not row.changes and (row.now or row.mesh_text == row.current.mesh_text)
        if row.may_run and not row.proposal_number and row.speedup_per_token and not same:
            offered += 1
            if offered <= most:
                yield MeshOffered(row.mesh, row.changes, words.configuration(row).replace("`", ""))


def unknown_facts(ctx: AnswerContext, names: Sequence[str]) -> Answer:
    """What is not known and would change the answer, with choices that state it."""
    if not names:
        return
    shards = ctx.bench.config.mesh.batch_shards
    choices = {
        "model": tuple(f"The model is {name}" for name in ("llama3.1-8b", "llama3.1-70b", "mixtral-8x7b")),
        "training.global_batch": tuple(f"The global batch is {shards * n}" for n in (1, 4, 16)),
        "training.seq_len": tuple(f"The sequence length is {n}" for n in (2048, 4096, 8192)),
    }
    first = next((name for name in choices if name in names), "")
    yield from ctx.say(f"Not known: {facts.in_words(names)}; state it here, and the answer will use it.")
    if first:
        yield Question(f"What is {facts.in_words([first])}?", choices[first])


def how(ctx: AnswerContext) -> str:
    """Whether the step time of the current configuration was measured, or is predicted itself."""
    return "predicted" if ctx.bench.profile.basis == MODEL else "measured"


def proof(ctx: AnswerContext, row: Priced) -> Answer:
    """Whether a measured run supports a proposal."""
    for key in (item.key for item in row.citations if item.source == "history" and item.key):
        record = RecordRow.model_validate((yield from ctx.look(RetrievalTools.record, id=key)).data or {})
        if record.outcome == "faster":
            where = f" on {record.chip}" if record.chip else ""
            effect = words.lower_first((record.effect or record.change).rstrip("."))
            yield from ctx.say(f"**Proven elsewhere**: record `{key}`{where}, {effect}.")
            return
    if row.kind != "keep" and (row.changes or not row.keeps_the_mesh):
        yield from ctx.say(
            "**No precedent**: no record of a similar measured change is close enough to count as evidence; the "
            "confidence comes from the calibrated model alone."
        )


def which(ctx: AnswerContext, given: About) -> int:
    return given.proposal or 1
