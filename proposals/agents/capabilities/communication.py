"""Communication: per axis and collective, bandwidth achieved against possible, DCN, overlap and flags."""

from __future__ import annotations

from agent.tools import Arguments, NoArguments, ToolError
from proposals.agents import words
from proposals.agents.capabilities.capability import capability
from proposals.agents.capabilities.common import Axis, get
from proposals.agents.capabilities.desk import Answer, Desk
from proposals.agents.capabilities.findings import findings_about
from proposals.agents.capabilities.ops import NO_OPS
from proposals.agents.capabilities.run import no_profile, predicted_instead


class OnAxis(Arguments):
    axis: Axis = ""


@capability(
    "Communication per axis",
    "How much time is spent in communication?",
    "How much of the collectives is exposed and how much is overlapped?",
    "Which axis costs the most communication time?",
    "How long do the all-gathers and reduce-scatters take?",
    "What are the all-reduces on this axis moving?",
)
def communication(desk: Desk, given: OnAxis) -> Answer:
    """Collectives per mesh axis and kind: time, exposed time, share hidden behind compute, bytes, tensors."""
    if no_profile(desk):
        yield from predicted_instead(desk, NO_OPS)
        return
    data = yield from get(desk, "collectives", axis=given.axis)
    rows = data.get("rows") or []
    if not rows:
        raise ToolError("The profile has no collective, so no communication was measured.")
    shares = data.get("of_the_step_share") or {}
    if "communication_exposed" in shares and not given.axis:
        yield from desk.say(
            f"Exposed communication takes **{words.share(shares['communication_exposed'])}** of the step, measured."
        )
    lines = [
        [
            str(row.get("axis") or "unattributed"), str(row["kind"]),
            words.time(row["time_s"]) if row.get("time_s") else "–",
            words.time(row["exposed_s"]) if row.get("exposed_s") is not None else "–",
            words.share(row["hidden_share"]) if row.get("hidden_share") is not None else "–",
            words.size(row["bytes"]) if row.get("bytes") else "–",
        ]
        for row in rows[:10]
    ]  # fmt: skip
    yield from desk.table(["Axis", "Collective", "Time per step", "Exposed", "Overlapped", "Bytes per step"], lines)
    costly = max((row for row in rows if row.get("exposed_s")), key=lambda row: row["exposed_s"], default=None)
    if costly:
        moved = f"; it moves {words.listed([str(t) for t in costly['tensors']])}" if costly.get("tensors") else ""
        yield from desk.say(
            f"Most exposed: the {costly['kind']} on {costly['axis'] or 'an unattributed axis'}, "
            f"{words.time(costly['exposed_s'])} per step{moved}."
        )


@capability(
    "Link bandwidth, achieved against possible",
    "What bandwidth do the collectives achieve compared to the peak of the links?",
    "How well is the interconnect used?",
    "What is the achieved DCN bandwidth versus peak?",
    "Why is the all-reduce bandwidth so low?",
    "Is the ICI or NVLink bandwidth saturated?",
)
def bandwidth(desk: Desk, given: OnAxis) -> Answer:
    """Achieved and possible bandwidth of the collectives per axis, DCN included, with the share reached."""
    if no_profile(desk):
        yield from predicted_instead(desk, NO_OPS)
        return
    data = yield from get(desk, "collectives", axis=given.axis)
    rows = [row for row in data.get("rows") or [] if row.get("possible_bytes_per_s")]
    if not rows:
        raise ToolError(
            "The profile does not tell the bytes of a collective with its time, so no bandwidth was measured."
            if data.get("rows")
            else "The profile has no collective, so no bandwidth was measured."
        )
    lines = [
        [
            str(row.get("axis") or "unattributed"), str(row["kind"]),
            words.rate(row["achieved_bytes_per_s"]) if row.get("achieved_bytes_per_s") else "–",
            words.rate(row["possible_bytes_per_s"]),
            "–" if row.get("achieved_of_possible_share") is None else words.share(row["achieved_of_possible_share"]),
        ]
        for row in rows
    ]  # fmt: skip
    yield from desk.say("Per core, measured against what the links of the axis allow:")
    yield from desk.table(["Axis", "Collective", "Achieved", "Possible", "Share reached"], lines)
    timed = [row for row in rows if row.get("achieved_of_possible_share") is not None]
    if timed:
        low = min(timed, key=lambda row: row["achieved_of_possible_share"])
        yield from desk.say(
            f"Lowest: the {low['kind']} on {low['axis'] or 'an unattributed axis'} with "
            f"{words.share(low['achieved_of_possible_share'])} of what its links allow."
        )


@capability(
    "Communication across slices (DCN)",
    "How much time do the slices spend exchanging gradients over the data-center network?",
    "Is the DCN the bottleneck?",
    "What goes over the network between slices or nodes?",
    "How large is the cross-slice all-reduce?",
)
def dcn(desk: Desk, given: NoArguments) -> Answer:
    """Collectives across slices: time, exposed time, bytes and bandwidth over DCN."""
    run = yield from get(desk, "run")
    slices = run["configuration"]["hardware"].get("slices", 1)
    if slices < 2:
        chip = yield from get(desk, "hardware")
        yield from desk.say(
            f"This run has one slice, so nothing goes over DCN. The network of {chip['title']} has "
            f"{words.rate(chip['dcn_bytes_per_s_per_host'])} per host."
        )
        return
    yield from communication(desk, OnAxis(axis="dcn"))
    found = yield from desk.look("collectives", axis="dcn")
    if found and any(row.get("possible_bytes_per_s") for row in found.data.get("rows") or ()):
        yield from bandwidth(desk, OnAxis(axis="dcn"))


@capability(
    "XLA flags for the exposed communication",
    "Which XLA flags should I set?",
    "How can I overlap communication with compute?",
    "What flags hide the all-gathers?",
    "How do I enable the latency hiding scheduler or async collectives?",
)
def flags(desk: Desk, given: NoArguments) -> Answer:
    """Documented XLA flags for the collectives that are exposed in this run, each with its source."""
    data = yield from get(desk, "flags")
    set_now = data.get("set_in_the_configuration") or []
    yield from desk.say(f"Set in the configuration: {words.listed([f'`{flag}`' for flag in set_now]) or 'none'}.")
    rows = data.get("rows") or []
    if not rows:
        yield from desk.say(
            "No collective of this run is exposed for long enough, or none has a documented set of flags on "
            f"{data['chip']}, so no flag is suggested."
        )
    for row in rows:
        exposed = f" ({words.time(row['exposed_s'])} exposed per step)" if row.get("exposed_s") else ""
        listed = "\n".join(row.get("flags") or ["(all of them are set)"])
        yield from desk.say(
            f"For the {row['collective']} on {row['axis']}{exposed}: {row['note']}\n\n```\n{listed}\n```"
        )
        yield from desk.say(f"Documented in {row['documented_in']}.")
    yield from findings_about(desk, ("overlap", "exposed", "async"))
