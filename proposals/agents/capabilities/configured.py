"""A configuration as a form: the current one, or a proposal's, with everything changed that is named.

Every capability about a configuration takes this form and begins with what it made of it; what is reported of the
configuration (time, memory, legality) is the capability's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from math import prod
from typing import Annotated, Any

from pydantic import Field

from agent.tools import Arguments, ToolError
from perfmodel.config import MeshSizes
from proposals.agents import notation, words
from proposals.agents.capabilities.answer_context import AnswerContext
from proposals.agents.capabilities.capability import Missing
from proposals.agents.capabilities.common import (
    Batch,
    ChipName,
    Chips,
    Length,
    MeshText,
    Micro,
    Number,
    Precision,
    Remat,
    Sharding,
    arguments,
    get,
    whole,
)
from proposals.agents.conversation import Said
from proposals.agents.mesh_completion import Sizes, fill
from proposals.agents.priced import Priced
from proposals.agents.tools import ModelTools, WhatIfTools

#: Training keys by the field of the form that sets them.
SETTINGS = {
    "batch": "global_batch", "seq_len": "seq_len", "micro_batches": "grad_accum", "micro_batch": "micro_batch",
    "virtual_stages": "virtual_stages",
    "remat": "remat", "precision": "precision", "weight_sharding": "weight_sharding", "optimizer": "optimizer",
    "xla_flags": "xla_flags",
}  # fmt: skip
#: Configurations of one answer.
MOST = 6


class Configured(Arguments):
    """A configuration: the current one, or a proposal's, with what is given changed."""

    proposal: Number = None
    mesh: MeshText = ""
    chip: ChipName = ""
    chips: Chips = None
    batch: Batch = None
    seq_len: Length = None
    micro_batches: Micro = None
    micro_batch: Annotated[
        int | None, Field(ge=1, le=10**6, description="Sequences per micro-batch and data-parallel rank (mbs).")
    ] = None
    virtual_stages: Annotated[
        int | None, Field(ge=1, le=1024, description="Virtual stages per pipeline stage (interleaved schedule, vpp).")
    ] = None
    remat: Remat = ""
    precision: Precision = ""
    weight_sharding: Sharding = ""
    optimizer: Annotated[str, Field(max_length=20, description="Optimizer, such as adamw or adafactor.")] = ""
    xla_flags: Annotated[tuple[str, ...], Field(max_length=20, description="XLA flags to add.")] = ()
    variants: Annotated[
        tuple[str, ...], Field(max_length=MOST, description="One row each, such as remat=minimal | remat=full.")
    ] = ()

    @property
    def named(self) -> bool:
        """Whether anything but the current configuration is meant."""
        return bool(self.model_dump(include=set(Configured.model_fields), exclude_defaults=True))

    def but(self, *left: str) -> Configured:
        """The configuration without some of what is given."""
        given = self.model_dump(include=set(Configured.model_fields) - set(left), exclude_defaults=True)
        return Configured(**given)

    def each(self) -> list[Configured]:
        """One configuration per variant.  Raises ToolError where a variant is none."""
        base = self.but("variants")
        every = []
        for text in self.variants:
            name, is_, value = (part.strip() for part in text.partition("="))
            if not is_ or name not in Configured.model_fields or name == "variants":
                raise ToolError(f"“{text[:60]}” is not a setting; write one such as remat=full.")
            try:
                every.append(Configured.model_validate({**base.model_dump(exclude_defaults=True), name: value}))
            except ValueError:
                raise ToolError(f"“{text[:60]}” is not a value of {name.replace('_', ' ')}.") from None
        return every or [base]


Rows = Generator[Said, None, list[Priced]]


def configurations(ctx: AnswerContext, given: Configured, tool: Callable[..., Priced] = ModelTools.predict) -> Rows:
    """What a form means, priced (`predict`) or checked (`legality`): one row, or several where variants are named or
    sizes leave it open.  On other chips both tools give what `retarget` predicts."""
    rows: list[Priced] = []
    for one in given.each():
        start, changes = yield from _base(ctx, one)
        named = _sizes(ctx, one)
        slices = prod(named.dcn.values()) if named.dcn else ctx.bench.config.hardware.slices
        if away(ctx, one) or slices != ctx.bench.config.hardware.slices:
            there = yield from _there(ctx, one, named, changes, slices)
            rows += there
            continue
        for item in _filled(ctx, one, named, start, changes):
            row = yield from get(ctx, tool, **item)
            rows.append(row)
    return rows[:MOST]


def predict_arguments(ctx: AnswerContext, given: Configured) -> Generator[Said, None, list[dict[str, Any]]]:
    """What a form means on the chips that ran, as arguments of `predict`.  Raises ToolError for other chips."""
    rows: list[dict[str, Any]] = []
    for one in given.each():
        if away(ctx, one):
            raise ToolError("This is computed for the run's own chips; predict the configuration on the others first.")
        start, changes = yield from _base(ctx, one)
        rows += _filled(ctx, one, _sizes(ctx, one), start, changes)
    return rows[:MOST]


def away(ctx: AnswerContext, given: Configured) -> bool:
    """Whether other chips are meant than those that ran."""
    ran = ctx.bench.config.hardware
    return (given.chip or ran.chip) != ran.chip or (given.chips or ran.chips) != ran.chips


def _base(ctx: AnswerContext, given: Configured) -> Generator[Said, None, tuple[MeshSizes, dict[str, Any]]]:
    """The mesh that is changed, and all changed training keys."""
    config = ctx.bench.config
    base: MeshSizes = config.mesh.to_json()
    changes: dict[str, Any] = {}
    if given.proposal:
        row = yield from whole(ctx, given.proposal)
        base, changes = row.mesh, dict(row.changes)
    for name, key in SETTINGS.items():
        value = getattr(given, name)
        if value not in (None, "", ()):
            changes[key] = [*config.training.xla_flags, *value] if key == "xla_flags" else value
    return base, changes


def _sizes(ctx: AnswerContext, given: Configured) -> Sizes:
    if not given.mesh:
        return Sizes()
    mesh = ctx.bench.config.mesh
    named = notation.sizes(given.mesh, mesh)
    if not named:
        axes = ", ".join(axis for axis, _ in mesh.ici)
        raise Missing(f"“{given.mesh[:80]}” is not a mesh; write sizes by axis ({axes}), such as {mesh.text()}.")
    return named


def _filled(
    ctx: AnswerContext, given: Configured, named: Sizes, base: MeshSizes, changes: Mapping[str, Any]
) -> list[dict[str, Any]]:
    if not given.mesh:
        return [arguments(base, _split(ctx, base, changes))]
    config = ctx.bench.config
    filled = fill(named, base, config.hardware.chips_per_slice, config.mesh)
    if filled.problem:
        raise ToolError(filled.problem)
    return [arguments(mesh, _split(ctx, mesh, changes)) for mesh in filled.meshes[:4]]


def _split(ctx: AnswerContext, base: MeshSizes, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes on a mesh, with a number of micro-batches as their size where that is what the configuration gives:
    the size counts, whatever the number."""
    config = ctx.bench.config
    batch = changes.get("global_batch", config.training.global_batch)
    if "grad_accum" not in changes or "micro_batch" in changes or not config.training.micro_batch or not batch:
        return dict(changes)
    mesh = replace(config.mesh, ici=tuple(base["ici"].items()), dcn=tuple(base.get("dcn", {}).items()))
    count = mesh.batch_shards * changes["grad_accum"]
    if batch % count:
        raise ToolError(
            f"{changes['grad_accum']:,} micro-batches do not divide the sequences of a data-parallel rank: the global "
            f"batch of {batch:,} is not a multiple of {count:,}."
        )
    return {**{k: v for k, v in changes.items() if k != "grad_accum"}, "micro_batch": batch // count}


def within(ctx: AnswerContext, mesh: str) -> dict[str, Any]:
    """Arguments of `search` that pin the sizes of a text; none where it is empty."""
    if not mesh:
        return {}
    named = _sizes(ctx, Configured(mesh=mesh))
    return {"constraints": {"fixed": dict(named.ici)}} if named.ici else {}


def _there(ctx: AnswerContext, given: Configured, named: Sizes, changes: dict[str, Any], slices: int) -> Rows:
    """On other chips: the mesh that is named; else the current one over these chips, and the best legal one."""
    config = ctx.bench.config
    where: dict[str, Any] = {"changes": changes}
    where |= {"chip": given.chip} if given.chip else {}
    chips = given.chips or (None if given.chip else config.hardware.chips_per_slice * slices)
    where |= {"chips": chips} if chips else {}
    rows: list[Priced] = []
    for mesh in [given.mesh] if given.mesh else [config.mesh.text().replace(" · ", ", "), ""]:
        retargeted = yield from ctx.look(WhatIfTools.retarget, **where, **({"mesh": mesh} if mesh else {}))
        if retargeted.data is None:
            if mesh or not rows:
                raise ToolError(retargeted.error)
            continue  # the current mesh says why none is legal
        row = retargeted.data.there
        across = f", {row.slices} slices" if row.slices > 1 else ""
        more = {
            "changes": changes,
            "elsewhere": f"{row.chips:,} {row.chip} chips ({row.topology}{across})",
            "current": retargeted.data.current,
            "note": retargeted.data.note,
            "may_run": not row.violations,
        }
        if all(row.mesh != other.mesh for other in rows):
            rows.append(row.model_copy(update=more))
    return [rows[0]] if len(rows) > 1 and not given.mesh and not rows[1].may_run else rows


def subject(given: Configured, row: Priced) -> str:
    if not given.named:
        return f"The current configuration, {words.mesh(row)}"
    return f"Proposal {given.proposal}" if given == Configured(proposal=given.proposal) else words.located(row)
