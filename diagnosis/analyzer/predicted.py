"""A diagnosis without a profile: what was measured is the step time, or nothing; where it goes is predicted.

Every number says which: the step time, MFU and memory are measured or computed from it, the breakdown is the
performance model's, scaled to the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log, sqrt
from typing import Any

from diagnosis.analyzer import report
from diagnosis.analyzer.facts import Facts
from diagnosis.analyzer.quantity import evidence
from diagnosis.analyzer.rules.memory_traffic import near_capacity
from diagnosis.report import Bottleneck, Diagnosis, Finding, SourcedValue
from experiments.sentences import Sentence, join, say
from experiments.step_profile import MODEL, PROFILE, STEP_TIME, StepProfile
from perfmodel.arrays import special
from perfmodel.config import ExperimentConfig, Measured, missing_facts
from perfmodel.prediction import predict
from perfmodel.price import evidence_of, lacking
from perfmodel.price import predict as predict_by

#: Standard deviation of the logarithm of one predicted part of a step.  A stated assumption, not a fit.
SPREAD_OF_A_PART = 0.5
#: Highest confidence of a verdict without a profile: stalls of input and host are in no prediction at all.
MOST_CONFIDENT = 0.75
#: Measured over predicted step time from which the difference is a finding of its own.
WORTH_SAYING = 1.25
SOURCE = "performance model"
_NAMES = {"bubble": "idle", "overhead": "other"}
_WORDS = {
    "compute": "compute", "memory": "HBM traffic", "communication": "exposed communication",
    "idle": "the pipeline bubble", "launches": "waits for kernel launches",
}  # fmt: skip
#: Words of the contract for parts that it does not name.
_PRIMARY = {"launches": "idle"}
WHAT_A_PROFILE_ADDS = (
    "A profile adds what is missing here: ops and their roofline position, exposed communication per mesh "
    "axis, input and host stalls, stragglers."
)


@dataclass(frozen=True)
class Basis:
    """Basis of a diagnosis without a profile.

    kind: STEP_TIME or MODEL.  parts_s: predicted parts by the keys of Diagnosis.breakdown_s; they add up to the
    measured step, or to the predicted one where none was measured.  predicted_s: the step as the model alone has it.
    """

    kind: str
    parts_s: Mapping[str, float]
    predicted_s: float


def read(profile: StepProfile, config: ExperimentConfig | None) -> Basis | None:
    """None where there is a profile, or too little is configured to predict anything."""
    if profile.basis == PROFILE or config is None or missing_facts(config):
        return None
    alone = predict(config)
    if alone.step_time_s is None or alone.parts_s is None:
        return None
    if profile.basis == MODEL:
        # Divided as a measured step of the predicted length is.
        config = replace(config, measured=Measured(step_time_s=alone.step_time_s["estimate"]))
    if lacking(config):
        return None
    priced = predict_by(config, evidence_of(config))
    assert priced.parts_s is not None
    return Basis(profile.basis, _flat(priced.parts_s), alone.step_time_s["estimate"])


def diagnose(facts: Facts, basis: Basis) -> Diagnosis:
    """The diagnosis: measured KPIs where there are any, a predicted breakdown and verdict, and what to measure next."""
    total = sum(basis.parts_s.values())
    shares = {name: value / total for name, value in basis.parts_s.items()}
    verdict = _judge(facts, basis, shares)
    findings = (
        *_above_prediction(facts, basis),
        *(one.finding for one in near_capacity(facts)),
        _missing_profile(basis),
    )
    findings = tuple(finding.numbered(f"finding-{index}") for index, finding in enumerate(findings))
    return Diagnosis(
        kpis=facts.kpis,
        not_measured=facts.not_measured,
        bottleneck=verdict,
        findings=findings,
        ops=(),
        breakdown_s=dict(basis.parts_s),
        breakdown_share=shares,
        mfu_convention=facts.mfu_convention,
        report=_report(facts, basis, shares, verdict, findings),
        basis=basis.kind,
        recording=facts.recording,
        predicted_step_time_s=basis.predicted_s,
    )


def _flat(parts: Mapping[str, Any]) -> dict[str, float]:
    """Parts of a prediction by the keys of Diagnosis.breakdown_s; what is nothing is left out."""
    by_term: dict[str, float] = {}
    for name, value in parts.items():
        if isinstance(value, Mapping):
            by_term |= {f"ici:{axis}": seconds for axis, seconds in value.items()}
        else:
            key = _NAMES.get(name, name)
            by_term[key] = by_term.get(key, 0.0) + value
    return {name: seconds for name, seconds in by_term.items() if seconds > 0}


def _judge(facts: Facts, basis: Basis, shares: Mapping[str, float]) -> Bottleneck:
    """The largest predicted part.  Input and host stalls are in no prediction; waits for launches are idle time."""
    parts = {
        "compute": shares.get("compute", 0.0),
        "memory": shares.get("hbm", 0.0),
        "communication": sum(value for name, value in shares.items() if name.startswith("ici") or name == "dcn"),
        "idle": shares.get("idle", 0.0),
        "launches": shares.get("kernel_launches", 0.0),
    }
    first, second, *_ = sorted(parts, key=lambda name: -parts[name])
    step = facts.step_time_s
    # Of what no term explains, nobody knows where it goes.
    explained = min(1.0, basis.predicted_s / step, step / basis.predicted_s) if step else 1.0
    sure = _certain(parts[first], parts[second])
    confidence = min(MOST_CONFIDENT, 0.5 + (sure - 0.5) * explained)
    rows = [_share(_WORDS[name], value) for name, value in parts.items() if value >= 0.0005]
    if (unknown := shares.get("other", 0.0)) >= 0.0005:
        rows.append(_share("time that the model does not explain", unknown))
    of = "the step" if unknown <= parts[first] else "what the model explains"
    return Bottleneck(
        primary=_PRIMARY.get(first, first),
        confidence=round(confidence, 2),
        statement=_statement(facts, basis, first, of, rows),
        evidence=tuple(_times(facts, basis)),
        secondary=_PRIMARY.get(second, second) if parts[second] > 0.05 else None,
    ).numbered()


def _certain(larger: float, smaller: float) -> float:
    """Probability that the one part is the larger, where both err as SPREAD_OF_A_PART says."""
    if smaller <= 0:
        return 1.0
    return float(special("ndtr", log(max(larger, 1e-9) / smaller) / (SPREAD_OF_A_PART * sqrt(2.0))))


def _share(words: str, value: float) -> SourcedValue:
    return evidence(f"predicted share of {words}", value, "share", "predicted", "predicted part ÷ step", SOURCE)


def _times(facts: Facts, basis: Basis) -> list[SourcedValue]:
    predicted = evidence(
        "step time predicted by the model alone", basis.predicted_s, "s", "predicted", "asap predict", SOURCE
    )
    if facts.step_time_s is None:
        return [predicted]
    return [
        evidence("measured step time", facts.step_time_s, "s", "measured", "measured.step_time_s", "configuration"),
        predicted,
    ]


def _statement(facts: Facts, basis: Basis, largest: str, of: str, rows: list[SourcedValue]) -> Sentence:
    """Return the verdict in words.  largest: the part it names; of: what that is the largest part of."""
    named = join(", ", (say("{} {}", row, row.label.removeprefix("predicted share of ")) for row in rows))
    measured, predicted = (_times(facts, basis)[0], _times(facts, basis)[-1])
    verb = "take" if largest == "launches" else "takes"
    text = say("Predicted, not measured: {} {} the largest part of {} ({}).", _WORDS[largest], verb, of, named)
    if facts.step_time_s is None:
        return say("{} This run was not measured; the performance model predicts a step time of {}.", text, predicted)
    ratio = facts.step_time_s / basis.predicted_s
    if ratio >= WORTH_SAYING:
        formula = "measured ÷ predicted step time"
        return say(
            "{} The measured step time of {} is {} the {} that the performance model alone predicts; a profile is "
            "needed to attribute the difference.",
            text,
            measured,
            evidence(formula, ratio, "speedup", "predicted", formula, SOURCE),
            predicted,
        )
    return say(
        "{} Only the step time of {} was measured; the performance model alone predicts {}.", text, measured, predicted
    )


def _above_prediction(facts: Facts, basis: Basis) -> list[Finding]:
    step = facts.step_time_s
    if step is None or step < WORTH_SAYING * basis.predicted_s:
        return []
    measured, predicted = _times(facts, basis)
    gap = step - basis.predicted_s
    row = evidence("measured less predicted step time", gap, "s", "predicted", "measured − predicted step time", SOURCE)
    return [
        Finding(
            rule="step_above_prediction",
            title="Step time above prediction",
            insight=(
                say(
                    "The step takes {}, the performance model alone predicts {} for this configuration: {} per step is "
                    "unexplained.",
                    measured,
                    predicted,
                    row,
                )
            ),
            action=(
                "Record a profile to attribute it. Without one, check the data loader, checkpointing within the "
                "timed steps, a slow host or network link, and whether model, batch and framework match "
                "the configuration."
            ),
            impact="At most the unexplained time; part of it may be prediction error.",
            evidence=(measured, predicted, row),
            saving_s=gap,
            saving_share=gap / step,
        )
    ]


def _missing_profile(basis: Basis) -> Finding:
    what = "only the step time was measured" if basis.kind == STEP_TIME else "nothing was measured"
    return Finding(
        rule="missing_profile",
        title="Missing profile data",
        insight=f"No profile was recorded, {what}: the breakdown and the bottleneck are predicted.",
        action="Record a profile of 3–5 steps and upload it.",
        impact=WHAT_A_PROFILE_ADDS,
    )


def _report(
    facts: Facts, basis: Basis, shares: Mapping[str, float], verdict: Bottleneck, findings: tuple[Finding, ...]
) -> dict[str, list[str]]:
    """The report's four sections; the first two are those of a profile, with what is unavailable said once."""
    measured = "its step time was measured" if basis.kind == STEP_TIME else "nothing was measured"
    parts = report.terms(shares, "predicted")
    return {
        report.DETAILS: [*report.details(facts), f"Profile: none, {measured}."],
        report.HEALTH: [*report.health(facts, known_only=True), "All other KPIs: not measured (they need a profile)."],
        report.IDENTIFICATION: ["No profile was recorded, so there are no ops."],
        report.CORRELATION: [
            verdict.statement,
            say("Predicted breakdown of the step: {}.", parts),
            *(say("{}. {}", item.title, item.insight) for item in findings),
        ],
    }
