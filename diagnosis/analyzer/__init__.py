"""The Analyzer: from a profile and its configuration to a diagnosis.  Pure; knows no Django."""

from __future__ import annotations

from diagnosis.analyzer import (
    bottleneck,
    breakdown,
    collectives,
    kpis,
    limits,
    links,
    names,
    predicted,
    recording,
    report,
    rules,
    tables,
)  # fmt: skip
from diagnosis.analyzer.facts import Facts
from diagnosis.analyzer.ops import coverage, read_ops, to_diagnosis
from diagnosis.report import Diagnosis, Roofline
from experiments import passes
from experiments.consistency import precision_of
from experiments.hlo import groups
from experiments.hlo import text as hlo
from experiments.step_profile import StepProfile
from formatting import plain, share
from perfmodel.config import ExperimentConfig

__all__ = ["diagnose", "read_facts"]


def read_facts(profile: StepProfile, config: ExperimentConfig | None) -> Facts:
    """The profile under its configuration, read once."""
    platform = recording.platform_of(profile, config)
    on_cpu = platform == "cpu"
    chip = None if on_cpu else links.chip_of(config) or links.chip_named(profile.device.chip)
    # Devices of a CPU recording talk through memory: the mesh still says who talks, the chip's links say nothing.
    talking = collectives.Collectives(profile.ops, config, wired=not on_cpu, trains=recording.may_train(profile.ops))
    ops = read_ops(profile, talking, chip, platform)
    listed = coverage(profile)
    precision = precision_of(profile, config.training.precision) if config is not None else ""
    recorded = recording.decide(profile, config, precision, ops, listed)
    ops = limits.with_evidence(ops, recorded, config, chip)
    values, reasons, convention = kpis.measure(profile, config, chip, ops, recorded, precision)
    complete = recorded.meets(("most ops",))
    shares = breakdown.shares(profile, ops, values, complete) if recorded.is_program else {}
    values["goodput"] = breakdown.goodput(profile, values, shares)
    if values["goodput"] is not None:
        reasons.pop("goodput", None)
    return Facts(
        profile=profile,
        config=config,
        chip=chip,
        ops=ops,
        coverage=listed,
        kpis=values,
        not_measured=reasons,
        shares=shares,
        mfu_convention=convention,
        recording=recorded,
    )


def diagnose(profile: StepProfile, config: ExperimentConfig | None = None) -> Diagnosis:
    """Why the step takes the time it takes, and what each cause could save at most.

    Works with whatever was measured: without steps, without a configuration, with five ops or none; what is unknown
    is None with its reason, and the last finding says what to record.  Without a profile (`profile.basis`) the step's
    division is predicted, and marked so.
    """
    try:
        if (basis := predicted.read(profile, config)) is not None:
            return predicted.diagnose(read_facts(profile, config), basis)
        return _diagnose(profile, config)
    finally:
        # What was remembered of this profile's text (megabytes of it) must not outlive it in a worker.
        for module in (hlo, groups, collectives, names, passes):
            for remembered in vars(module).values():
                getattr(remembered, "cache_clear", int)()


def _diagnose(profile: StepProfile, config: ExperimentConfig | None) -> Diagnosis:
    facts = read_facts(profile, config)
    findings = rules.run(facts)
    verdict = bottleneck.judge(facts, findings)
    step = facts.step_time_s
    severe = (note.message for note in profile.notes if note.severity in ("warning", "error"))
    return Diagnosis(
        kpis=facts.kpis,
        not_measured=facts.not_measured,
        bottleneck=verdict,
        findings=findings,
        ops=tuple(to_diagnosis(op, profile.device.measured_cores) for op in facts.ops),
        breakdown_s={bar: share * step for bar, share in facts.shares.items()} if step else {},
        breakdown_share=facts.shares,
        collectives=tables.collectives(facts),
        roofline=Roofline(profile.device.peak_flops_per_s, profile.device.peak_hbm_bytes_per_s),
        mfu_convention=facts.mfu_convention,
        report=report.write(facts, verdict, findings),
        timeline=profile.timeline,
        coverage=facts.coverage,
        warnings=(*_mismatch(profile, config), *_above_links(facts), *_lower_bound(facts), *severe),
        not_modelled=facts.recording.refusal,
        recording=facts.recording,
    )


def _above_links(facts: Facts) -> tuple[str, ...]:
    """Collectives whose bytes over their time exceed what links carry: named, and no bandwidth stated for them."""
    rates = {op.op.name: op.collective.above_links for op in facts.collectives
             if op.collective and op.collective.above_links}  # fmt: skip
    if not rates:
        return ()
    worst = max(rates, key=lambda name: rates[name] or 0.0)
    count = f"{len(rates)} collectives report" if len(rates) > 1 else "One collective reports"
    return (
        f"{count} more bytes than the links can carry in the recorded time ({worst}: "
        f"{plain(rates[worst] or 0.0, 'bytes_per_s')}): part of the transfer overlapped other ops, or the shapes are "
        "not what is transferred. No bandwidth is computed there.",
    )


def _lower_bound(facts: Facts) -> tuple[str, ...]:
    if not facts.recording.hides_communication or not facts.kpis.get("communication"):
        return ()
    unknown = share(facts.recording.unknown_share)
    return (f"Communication is a lower bound: kernels of unknown kind, {unknown} of the time, may be collectives.",)


def _mismatch(profile: StepProfile, config: ExperimentConfig | None) -> tuple[str, ...]:
    """A configuration that belongs to other hardware than the profile: said, not guessed away."""
    device = profile.device
    if config is None or not device.chip or device.chip == config.hardware.chip:
        return ()
    return (
        f"The profile was recorded on {device.kind}, but the configuration names {config.hardware.chip}: bandwidths "
        "and MFU are computed for the configured chip.",
    )
