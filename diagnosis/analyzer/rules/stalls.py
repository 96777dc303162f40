"""Time in which the device does not work: input, host, offload, idle gaps."""

from __future__ import annotations

import re
from collections.abc import Iterator

from diagnosis.analyzer.facts import Facts, total_share
from diagnosis.analyzer.host_copies import MIGRATION, bytes_each_way, host_copies, host_link_rate, link_time_s, offloads
from diagnosis.analyzer.quantity import evidence, share_of
from diagnosis.analyzer.rules.base import WORTH_SAYING, Claim, claim, lines, time_of
from diagnosis.analyzer.statement import BETWEEN_OPS, left_out, unexplained
from experiments.sentences import join, say

_OVERVIEW = "XProf overview"


def input_pipeline(facts: Facts) -> Iterator[Claim]:
    share = facts.shares.get("input", 0.0)
    if share < WORTH_SAYING:
        return
    cost = evidence("input time", share, "share", "measured", "input time ÷ step time", _OVERVIEW)
    yield claim(
        facts, "input_pipeline", "Input pipeline stalls",
        say("Waiting for the next input batch takes {} {}.", cost, facts.base),
        "Prefetch batches to the device during the step, add data-loader workers, decode and tokenise off the "
        "critical path or ahead of the run, and read from closer storage.",
        share,
    )  # fmt: skip


def host_gaps(facts: Facts) -> Iterator[Claim]:
    """Host work, dispatch and compilation between ops, and idle time that nothing else explains."""
    host, idle = facts.shares.get("host", 0.0), facts.shares.get("idle", 0.0)
    transfers = total_share(facts.where(lambda op: op.family in ("output", "host")))
    own = max(0.0, host - transfers)
    if facts.once >= WORTH_SAYING or facts.profile.recorded.start_up_s > 0:
        yield claim(
            facts, "host_gaps", "Start-up and gaps that may not come back", left_out(facts),
            "Look at these gaps on the timeline, and record again after a warm-up: no later step is known to pay for "
            "them. If they come back, load and preprocess ahead.",
            None, impact="No later step is known to wait for them, so no saving is stated.",
        )  # fmt: skip
    if own >= WORTH_SAYING:
        cost = evidence("host time", own, "share", "measured", "host, launch and compile time ÷ step time", _OVERVIEW)
        causes, actions = _host_causes(facts, own)
        graphs = " or CUDA graph" if facts.on_gpu else ""
        program = "jit" if facts.of_xla else f"compiled program{graphs}"
        on_cpu = facts.recording.platform == "cpu"
        text = say("The device waits for the host (dispatch, kernel launches and other work) {} {}{}.", cost,
                   facts.base, causes)  # fmt: skip
        ahead = "Dispatch ahead (do not read values of the step, such as the loss, every step), keep"
        yield claim(
            facts, "host_gaps", "Time between ops" if on_cpu else "Host-bound gaps",
            say(BETWEEN_OPS, cost, facts.base) if on_cpu else text,
            f"{actions}{'Keep' if on_cpu else ahead} the step in one {program}, avoid recompilation with fixed shapes, "
            "move callbacks and checkpointing to another thread.",
            own,
        )  # fmt: skip
    if idle >= 0.05 and facts.axis_size("pipeline") < 2:
        cost = evidence("idle time", idle, "share", "measured", "1 − duty cycle − input and host time", _OVERVIEW)
        where = (
            "Look at the host's threads in these gaps (XProf's trace viewer shows them)"
            if facts.recording.has["host_threads"]
            else "Record a trace with host threads"
        )
        action = (
            "Find on the timeline which event or allocation these ops wait for, and record again after a warm-up: a "
            "first call loads its module. A CUDA graph shortens what each launch takes on the device."
            if facts.recording.meets(("launches",))
            else f"{where}: blocking transfers, slow dispatch of many small programs, or a wait for another slice or "
            "host; fewer, larger programs per step remove launch gaps."
        )
        yield claim(
            facts, "idle_gaps", "Device idle between ops",
            say("The device is idle {} {}{}.", cost, facts.base, unexplained(facts)),
            action, idle,
        )  # fmt: skip


#: What the host does while the device waits for it (`Recorded.gaps`), and what to do about it.
_HOST_CAUSES = {
    "synchronisation": (
        "after calls that wait for the device",
        "Remove calls that wait for the device inside the step (loss.item(), synchronize(), copies that block). ",
    ),
    "optimizer": ("in the optimizer's host code", "Use a fused or foreach optimizer. "),
    "checkpoint": ("while a checkpoint is saved", "Save checkpoints asynchronously. "),
}


def _host_causes(facts: Facts, own: float) -> tuple[str, str]:
    """(what the host did, of the device's wait for it; actions against it), as far as the trace tells."""
    known = {cause: part for cause in _HOST_CAUSES if (part := facts.profile.recorded.gaps.get(cause, 0.0)) >= 0.005}
    if not known or sum(known.values()) > own + 0.005:
        return "", ""
    rows = [
        say("{} {}", evidence(f"of it, {_HOST_CAUSES[cause][0]}", part, "share", "measured",
                              "Σ gaps until a late launch ÷ profiled time", "trace"), _HOST_CAUSES[cause][0])
        for cause, part in known.items()
    ]  # fmt: skip
    return say(": {}", join(", ", rows)), "".join(_HOST_CAUSES[cause][1] for cause in known)


def host_offload(facts: Facts) -> Iterator[Claim]:
    """Waiting for tensors that are offloaded to host memory and fetched back."""
    ops, share = host_copies(facts), facts.shares.get("host_transfer", 0.0)
    if share < WORTH_SAYING or not offloads(ops):
        return
    cost = share_of("exposed host transfers", share, "time waited for copies ÷ step time", ops)
    text = say("Waiting for copies to and from host memory takes {} {}{}.", cost, facts.base, lines(ops))
    everything = tuple(op for op in facts.ops if op.op.host_bytes)
    runs = max((op.op.occurrences for op in everything), default=0)
    to_host, from_host = bytes_each_way(everything)
    if runs and to_host + from_host > 0:
        # All copies of one iteration of their loop, on one core.
        out = evidence(
            "to the host per iteration", to_host / runs, "bytes", "computed", "Σ bytes ÷ occurrences", "HLO shapes"
        )
        back = evidence(
            "from the host per iteration", from_host / runs, "bytes", "computed", "Σ bytes ÷ occurrences", "HLO shapes"
        )
        text += say(" Each iteration moves {} to the host and {} back.", out, back)
    full, saved, most = False, share, ""
    if (rates := host_link_rate(facts)) is not None:
        achieved, possible = rates
        text += say(" The busier direction reaches {} per core", achieved)
        text += say(" of {} host-link bandwidth.", possible) if possible else "."
        full = possible is not None and (achieved.value or 0.0) >= 0.8 * (possible.value or 0.0)
        least = link_time_s(facts)
        if least is not None and facts.step_time_s and not full:
            # However early the copies start, the step takes as long as the link needs for their bytes.
            saved = min(share, max(0.0, 1.0 - (least.value or 0.0) / facts.step_time_s))
            most = say("Saving more requires fewer bytes: the link needs {} for these.", least) if saved < share else ""
    action = (
        "The host link is saturated: offload fewer bytes (keep more in HBM where there is headroom, or recompute)."
        if full
        else "Offload fewer bytes where HBM has headroom, and overlap the rest: start each copy earlier, so that it "
        "overlaps the compute of another layer."
    )
    yield claim(
        facts, "host_offload", "Host-transfer bound (offload)", text, action, saved, ops=ops,
        impact=most,
    )  # fmt: skip


def host_copies_in_step(facts: Facts) -> Iterator[Claim]:
    """Copies one way between host and device: results that the program reads, pages of unified memory, batches, or
    what the recording does not tell apart from weights that are kept on the host."""
    ops, share = host_copies(facts), facts.shares.get("host_transfer", 0.0)
    if share < WORTH_SAYING or offloads(ops):
        return
    to_host, from_host = bytes_each_way(ops)
    runs = max((op.op.occurrences for op in ops), default=0)
    cost = share_of("exposed host transfers", share, "time waited for copies ÷ step time", ops)
    recorded = facts.profile.recorded
    pages = any(op.op.name.startswith(MIGRATION) for op in ops)
    reads = facts.recording.kind == "training" or "input waits" in recorded.has
    streams = any(_WEIGHTS.search(op.path) for op in ops)
    which = "pages" if pages else "results" if to_host > from_host else "input" if reads and not streams else "other"
    title, what, action = _COPIES[which]
    text = say("Copying {} takes {} {}{}", what, cost, facts.base, lines(ops))
    if runs and max(to_host, from_host):
        size = evidence(
            "bytes per copy", max(to_host, from_host) / runs, "bytes", "computed", "Σ bytes ÷ occurrences", "trace"
        )
        text += say(": {} each time", size)
    pageable = any("pageable" in op.op.name.lower() for op in ops)
    text += ", from pageable memory." if pageable else "."
    if pageable and which in ("input", "other"):
        pin = "Pin the host's memory (pin_memory=True): copies from pageable memory are staged and block the host. "
        action = pin + action
    yield claim(facts, "host_copies", title, text, action, share, ops=ops)


#: Modules that fetch their weights from the host before they run.
_WEIGHTS = re.compile(r"FSDP|pre_forward|offload|unshard|swap|fetch", re.I)
#: (title, what is copied, what to do) by what copies in one direction are.
_COPIES = {
    "pages": (
        "Pages of unified memory move as they are touched",
        "pages of unified memory (cudaMallocManaged)",
        "Prefetch the pages before the kernel that reads them (cudaMemPrefetchAsync), or allocate on the device.",
    ),
    "results": (
        "Results copied to the host in the step",
        "results to the host",
        "Copy results every few steps, into pinned memory and with non_blocking=True.",
    ),
    "input": (
        "Input copied inside the step",
        "batches to the device",
        "Copy the next batch on a stream of its own with non_blocking=True while this step runs, and send no more "
        "bytes than the model reads (integers, lower precision).",
    ),
    "other": (
        "Copies from the host inside the step",
        "from the host to the device (weights that are kept on the host, or input: the recording does not tell which)",
        "If these are weights (offload), keep more of them on the device, in lower precision, or fetch those of the "
        "next layer while this one runs; if they are input, copy the next batch on a stream of its own.",
    ),
}


def device_transfers(facts: Facts) -> Iterator[Claim]:
    """Infeed, outfeed, host sends and callbacks that run as ops."""
    ops = facts.where(lambda op: op.family in ("input", "output", "host"))
    share = total_share(ops)
    if share < WORTH_SAYING:
        return
    cost = time_of("infeed, outfeed and host transfers on the device", ops)
    yield claim(
        facts, "infeed_outfeed", "Infeed and outfeed inside the step",
        say("Infeed, outfeed and host transfers take {} {} as ops on the device{}.", cost, facts.base, lines(ops)),
        "Pass batches as arguments with prefetch instead of infeed, send metrics every few steps, remove debug "
        "prints and host callbacks from the step.",
        share, ops=ops,
    )  # fmt: skip
