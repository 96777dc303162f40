"""Communication: per axis and collective, bandwidth achieved against possible, DCN, overlap and flags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from agent.tools import Arguments, NoArguments, ToolError
from formatting import listed
from proposals.agents import words
from proposals.agents.capabilities.answer_context import Answer, AnswerContext
from proposals.agents.capabilities.capability import capability
from proposals.agents.capabilities.common import Axis, get
from proposals.agents.capabilities.explaining import no_profile, predicted_instead
from proposals.agents.capabilities.shares import NO_OPS
from proposals.agents.diagnosed import Collectives
from proposals.agents.tools import FlagTools, MachineTools, RunTools
from proposals.agents.tools.flags import FlagRow, FlagRows
from proposals.agents.tools.machine import DocumentedFlags


class AxisFilter(Arguments):
    axis: Axis = ""


class NamedFlags(Arguments):
    xla_flags: Annotated[
        tuple[str, ...], Field(max_length=12, description="Flags to explain; empty: applicable flags.")
    ] = ()
    text: Annotated[
        str, Field(max_length=400, description="Or text that names flags, environment variables or arguments.")
    ] = ""


@capability(
    "Communication per axis",
    "How much time is spent in communication?",
    "How much of the collectives is exposed and how much is overlapped?",
    "Which axis costs the most communication time?",
    "How long do the all-gathers and reduce-scatters take?",
    "What are the all-reduces on this axis moving?",
)
def communication(ctx: AnswerContext, given: AxisFilter) -> Answer:
    """Collectives per mesh axis and kind: time, exposed time, share hidden behind compute, bytes, tensors."""
    if no_profile(ctx):
        yield from predicted_instead(ctx, NO_OPS)
        return
    data = yield from get(ctx, RunTools.collectives, axis=given.axis, by_kind=True)
    rows, shares = data.rows, data.of_the_step_share
    if not rows:
        raise ToolError("The profile has no collectives, so no communication was measured.")
    if "communication_exposed" in shares and not given.axis:
        yield from ctx.say(
            f"Exposed communication takes **{words.share(shares['communication_exposed'])}** of the step, measured."
        )
    yield from _kinds(ctx, data)
    lines = [
        [
            row.axis or "unattributed", row.kind,
            words.time(row.time_s) if row.time_s else "–",
            words.time(row.exposed_s) if row.exposed_s is not None else "–",
            words.share(row.hidden_share) if row.hidden_share is not None else "–",
            words.size(row.bytes) if row.bytes else "–",
        ]
        for row in rows[:8]
    ]  # fmt: skip
    yield from ctx.table(["Axis", "Collective", "Time per step", "Exposed", "Overlapped", "Bytes per step"], lines)
    costly = max(rows, key=lambda row: row.exposed_s or 0.0)
    if costly.exposed_s:
        moved = f"; it moves {listed(costly.tensors)}" if costly.tensors else ""
        exposed = words.time(costly.exposed_s)
        yield from ctx.say(f"Most exposed: the {costly.kind} on {costly.place}, {exposed} per step{moved}.")


def _kinds(ctx: AnswerContext, data: Collectives) -> Answer:
    """The kinds of collectives that the message names, each in all, the longest first."""
    plain = re.sub(r"[\s_-]", "", ctx.message.lower())
    rows = [row for row in data.by_kind if re.sub(r"[\s_-]", "", row.kind) in plain]
    rows.sort(key=lambda row: -row.share)
    parts = [f"{row.kind} {words.time(row.time_s)} ({words.share(row.share)})" for row in rows if row.time_s]
    if parts:
        yield from ctx.say(f"**{words.capital(listed(parts))}** per step and core, measured.")


@capability(
    "Link bandwidth, achieved vs. peak",
    "What bandwidth do the collectives achieve compared to the peak of the links?",
    "How well is the interconnect used?",
    "What is the achieved DCN bandwidth versus peak?",
    "Why is the all-reduce bandwidth so low?",
    "Is the ICI or NVLink bandwidth saturated?",
)
def bandwidth(ctx: AnswerContext, given: AxisFilter) -> Answer:
    """Achieved vs. link bandwidth of the collectives per axis, DCN included."""
    if no_profile(ctx):
        yield from predicted_instead(ctx, NO_OPS)
        return
    data = yield from get(ctx, RunTools.collectives, axis=given.axis)
    rows = [row for row in data.rows if row.possible_bytes_per_s]
    if not rows:
        raise ToolError(
            "No collective in the profile has both bytes and time, so no bandwidth was measured."
            if data.rows
            else "The profile has no collectives, so no bandwidth was measured."
        )
    lines = [
        [
            row.axis or "unattributed", row.kind,
            words.rate(row.achieved_bytes_per_s) if row.achieved_bytes_per_s else "–",
            words.rate(row.possible_bytes_per_s or 0.0),
            "–" if row.achieved_of_possible_share is None else words.share(row.achieved_of_possible_share),
        ]
        for row in rows
    ]  # fmt: skip
    yield from ctx.say("Measured per core, against the link bandwidth of the axis:")
    yield from ctx.table(["Axis", "Collective", "Achieved", "Possible", "Share of link bandwidth"], lines)
    reached = [(row.achieved_of_possible_share, row) for row in rows if row.achieved_of_possible_share is not None]
    if reached:
        share, low = min(reached, key=lambda item: item[0])
        yield from ctx.say(f"Lowest: the {low.kind} on {low.place} with {words.share(share)} of its link bandwidth.")


@capability(
    "Communication across slices (DCN)",
    "How much time do the slices spend exchanging gradients over the data-center network?",
    "Is the DCN the bottleneck?",
    "What goes over the network between slices or nodes?",
    "How large is the cross-slice all-reduce?",
)
def dcn(ctx: AnswerContext, given: NoArguments) -> Answer:
    """Collectives across slices: time, exposed time, bytes and bandwidth over DCN."""
    yield from get(ctx, RunTools.run)
    if ctx.bench.config.hardware.slices < 2:
        chip = yield from get(ctx, MachineTools.hardware)
        yield from ctx.say(
            f"This run has one slice, so nothing crosses DCN. The network bandwidth of {chip.title} has "
            f"{words.rate(chip.dcn_bytes_per_s_per_host)} per host."
        )
        return
    yield from communication(ctx, AxisFilter(axis="dcn"))
    collectives = (yield from ctx.look(RunTools.collectives, axis="dcn")).data
    if collectives and any(row.possible_bytes_per_s for row in collectives.rows):
        yield from bandwidth(ctx, AxisFilter(axis="dcn"))


@capability(
    "XLA flags for the exposed communication",
    "Which XLA flags should I set?",
    "How can I overlap communication with compute?",
    "What flags hide the all-gathers?",
    "How do I enable the latency hiding scheduler or async collectives?",
)
def flags(ctx: AnswerContext, given: NamedFlags) -> Answer:
    """Documented XLA flags for the collectives that are exposed in this run, each with its source."""
    text = " ".join((ctx.message, given.text, *given.xla_flags)).strip()
    named = yield from get(ctx, FlagTools.flag, text=text[:600])
    if named.flags:
        yield from explain_flags(ctx, named)
        return
    data = yield from get(ctx, MachineTools.flags)
    if data.program:
        yield from _no_xla(ctx, data)
        return
    if not data.rows:
        yield from ctx.say(
            "No collective of this run is exposed for long enough, or none has a documented set of flags on "
            f"{data.chip}, so no flag is suggested."
        )
        if no_profile(ctx):
            yield from predicted_instead(ctx, NO_OPS)
    for row in data.rows:
        how = ", predicted on the axis" if row.predicted else ""
        exposed = f" ({words.time(row.exposed_s)} exposed per step{how})" if row.exposed_s else ""
        lines = "\n".join(row.flags or ("(all already set)",))
        yield from ctx.say(f"For the {row.collective} on {row.axis}{exposed}: {row.note}\n\n```\n{lines}\n```")
        yield from ctx.say(f"Documented in {row.documented_in}.")
    yield from ctx.say(
        f"Set in the configuration: {listed([f'`{flag}`' for flag in data.set_in_the_configuration]) or 'none'}. "
        "How much the flags hide is assumed, not predicted: only the next profile shows it."
    )


def _no_xla(ctx: AnswerContext, data: DocumentedFlags) -> Answer:
    """What a program takes that XLA did not compile."""
    yield from ctx.say(
        f"**None**: this run is a {data.program} program, which does not read XLA flags; `--xla_…` would have no "
        "effect."
    )
    if data.own:
        yield from ctx.say(f"Settings of {data.program} for the collectives of this run:")
        yield from ctx.bullets([f"`{row.flag}` {row.does}" for row in data.own[:6]])


def explain_flags(ctx: AnswerContext, data: FlagRows) -> Answer:
    """What a flag does, whether this program reads it, whether it is in effect, and which time it affects."""
    unknown = [row.name for row in data.flags if not row.known]
    for row in [row for row in data.flags if row.known][:6]:
        yield from ctx.say(f"`{row.name}` {row.does}.", *_state(row, data), *_effect(row))
    if unknown:
        names = listed([f"`{name}`" for name in unknown[:6]])
        yield from ctx.say(
            f"The effect of {names} is unknown here, and this run did not measure it; a profile with and one without "
            f"{'it' if len(unknown) == 1 else 'them'} would show it."
        )
    rows = [row for row in data.flags if row.known]
    if rows:
        custom = " XLA flags act on XLA's own ops, not inside custom calls."
        xla = any(row.takes.startswith("xla") for row in rows)
        yield from ctx.say(f"Its gain is not predicted: only a profile with it set shows it.{custom if xla else ''}")
        yield from ctx.say(f"Documented in {'; '.join(dict.fromkeys(row.documented_in for row in rows))}.")


def _state(row: FlagRow, data: FlagRows) -> Iterator[str]:
    if row.holds:
        yield f"It expands to {listed([f'`{flag}`' for flag in row.holds])}."
    if row.taken_here is False:
        framework = data.framework or data.program
        yield f"**This run ignores it**: it is a {framework} program{_wants(row)}."
        return
    yield f"It is set in {row.set_in}."
    if row.set_in_the_configuration:
        held = listed([f"`{flag}`" for flag in row.set_in_the_configuration])
        yield f"The configuration sets it ({held})."
    elif row.acts_already:
        yield (
            "It is already in effect, set or by default: the ops of the profile show it, so setting it changes nothing."
        )
    elif data.program == "XLA" and not row.holds:
        yield "The configuration does not set it, and no op shows it in effect."
    else:
        yield "The configuration does not say whether it is set."
    if row.lacks_axis:
        having = [str(number) for number in row.proposals_with_the_axis]
        then = f"; proposal {listed(having)} would have one" if having else ""
        yield f"**It has nothing to act on here**: this mesh has no {row.lacks_axis} axis larger than 1{then}."


def _wants(row: FlagRow) -> str:
    return {
        "xla-tpu": "; XLA reads it on TPUs", "xla-gpu": "; XLA reads it on GPUs", "xla": "; XLA reads it",
        "pytorch": "; PyTorch takes it", "megatron": "; Megatron takes it", "maxtext": "; MaxText sets it on TPUs",
    }.get(row.takes, "")  # fmt: skip


def _effect(row: FlagRow) -> Iterator[str]:
    if row.lacks_axis or row.taken_here is False:
        return
    parts = []
    for item in row.acts_on:
        exposed = item.exposed_s
        time = exposed if exposed is not None else item.time_s
        much = words.time(time) if time is not None else words.share(item.share or 0.0)
        parts.append(f"{item.what}, {much}{' exposed' if exposed is not None else ''} per step")
    if parts:
        yield f"Upper bound of what it can affect here: {listed(parts)}."
    else:
        yield "This run measured nothing that it affects."
    if row.memory:
        yield f"Memory: {row.memory}."
