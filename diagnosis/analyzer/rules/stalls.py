"""Time in which the device does not work: stragglers, input, host, transfers, uneven steps."""

from __future__ import annotations

from collections.abc import Iterator

from diagnosis.analyzer.facts import Facts, total_share
from diagnosis.analyzer.kpis import slow_host, straggler_lag_s
from diagnosis.analyzer.quantity import evidence
from diagnosis.analyzer.rules.base import WORTH_SAYING, finding, lines, time_of
from diagnosis.analyzer.statement import unexplained
from diagnosis.report import Evidence, Finding

_OVERVIEW = "XProf overview"


def stragglers(facts: Facts) -> Iterator[Finding]:
    """One core that works longer while the others wait for it in collectives."""
    step = facts.step_time_s
    lag = straggler_lag_s(facts.profile.cores)
    if not step or not lag or lag[0] / step < WORTH_SAYING:
        return
    behind, core, middle = lag
    late = evidence(
        f"lag of {core.name}", behind, "s", "measured", "slowest − median of own work per step", "pod viewer"
    )
    usual = evidence("median own work per step", middle, "s", "measured", "", "pod viewer")
    part = evidence("lag of the step", behind / step, "share", "computed", "lag ÷ step time", "pod viewer")
    cores = evidence("cores compared", float(len(facts.profile.cores)), "count", "measured", source="pod viewer")
    where = f" on host {core.host}" if core.host else ""
    rows: list[Evidence | None] = [late, usual, part, cores]
    together = slow_host(facts.profile.cores, core)
    more = ""
    if together is not None:
        row = evidence(f"cores of host {core.host}", float(together), "count", "measured", source="pod viewer")
        rows.append(row)
        more = f" All {row} cores of that host lag: it is the host, not the core."
    yield finding(
        facts,
        "stragglers",
        "One core is slower than the rest" if together is None else "One host is slower than the rest",
        f"Of {cores} cores, {core.name}{where} works {late} per step longer than the median of {usual}; the "
        "others wait for it "
        f"in their collectives, {part} of the step.{more}",
        "Look at that host first (thermal throttling, another process, a failing link); if the same core is slow "
        "in every run "
        "replace the host, if it changes look for uneven data (sequence packing, experts, pipeline stages).",
        rows,
        behind / step,
    )


def input_pipeline(facts: Facts) -> Iterator[Finding]:
    share = facts.shares.get("input", 0.0)
    if share < WORTH_SAYING:
        return
    cost = evidence("input time", share, "share", "measured", "input time ÷ step time", _OVERVIEW)
    yield finding(
        facts,
        "input_pipeline",
        "The device waits for input",
        f"Waiting for the next batch takes {cost} {facts.base}.",
        "Prefetch batches to the device while the step runs, add workers to the input pipeline, move decoding "
        "and tokenising "
        "off the critical path or ahead of the run, and read from closer storage.",
        [cost],
        share,
    )


def host_gaps(facts: Facts) -> Iterator[Finding]:
    """Host work, dispatch and compilation between ops, and idle time that nothing else explains."""
    host, idle = facts.shares.get("host", 0.0), facts.shares.get("idle", 0.0)
    pipeline = facts.config is not None and facts.config.mesh.size("pipeline") > 1
    transfers = total_share(facts.where(lambda op: op.family in ("output", "host")))
    own = max(0.0, host - transfers)
    if own >= WORTH_SAYING:
        cost = evidence("host time", own, "share", "measured", "host, launch and compile time ÷ step time", _OVERVIEW)
        yield finding(
            facts,
            "host_gaps",
            "The device waits for the host",
            f"Dispatch, launches and other host work take {cost} {facts.base} while the device stands still.",
            "Dispatch ahead (do not read values of the step, such as the loss, every step), keep the step in one "
            "jit, avoid "
            "recompilation by fixed shapes, move callbacks and checkpointing to another thread.",
            [cost],
            own,
        )
    if idle >= 0.05 and not pipeline:
        cost = evidence("idle time", idle, "share", "measured", "1 − duty cycle, less input and host time", _OVERVIEW)
        yield finding(
            facts,
            "idle_gaps",
            "The device is idle between ops",
            f"The device is idle {cost} {facts.base}{unexplained(facts)}.",
            "Record a trace with host threads: look for blocking transfers, slow dispatch of many small "
            "programs, or a wait for "
            "another slice or host; fewer, larger programs per step remove launch gaps.",
            [cost],
            idle,
        )


def device_transfers(facts: Facts) -> Iterator[Finding]:
    """Infeed, outfeed, host sends and callbacks that run as ops."""
    ops = facts.where(lambda op: op.family in ("input", "output", "host"))
    share = total_share(ops)
    if share < WORTH_SAYING:
        return
    cost = time_of(facts, "infeed, outfeed and host transfers on the device", ops)
    yield finding(
        facts,
        "infeed_outfeed",
        "Transfers to and from the host run inside the step",
        f"Infeed, outfeed and host transfers take {cost} {facts.base} as ops on the device{lines(ops)}.",
        "Pass batches as arguments with prefetch instead of infeed, send metrics every so many steps, remove "
        "debug prints and "
        "host callbacks from the step, and overlap offloaded state with compute.",
        [cost],
        share,
    )


def uneven_steps(facts: Facts) -> Iterator[Finding]:
    """Steps of very different length: what the slow ones cost."""
    profile = facts.profile
    spread, step, least = facts.kpis.get("step_time_spread"), profile.step_time_s, profile.step_time_min_s
    if spread is None or not step or least is None or spread < 0.05:
        return
    part = evidence("spread of the step time", spread, "share", "measured", "standard deviation ÷ mean", _OVERVIEW)
    fastest = evidence("fastest step", least, "s", "measured", source=_OVERVIEW)
    mean = evidence("mean step", step, "s", "measured", source=_OVERVIEW)
    rows: list[Evidence | None] = [part, fastest, mean]
    yield finding(
        facts,
        "uneven_steps",
        "Steps differ in length",
        f"Step times spread by {part} of their mean of {mean}; the fastest took {fastest}.",
        "Compare the slowest step with the fastest in the timeline: checkpointing, evaluation, recompilation, "
        "garbage collection "
        "of the input pipeline, or other jobs on the network.",
        rows,
        (step - least) / step,
    )
