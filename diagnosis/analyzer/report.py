"""The report in the four sections of the paper: details, KPI health, ops and roofline, correlation.

Every sentence comes from a value; a section says what is not measured instead of leaving it out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from diagnosis.analyzer.bottleneck import LOST
from diagnosis.analyzer.breakdown import bar_label
from diagnosis.analyzer.facts import Facts, total_share
from diagnosis.analyzer.kpis import COMPUTED
from diagnosis.analyzer.ops import overlapping
from diagnosis.report import Bottleneck, Finding
from experiments.sentences import Sentence, Value, join, say
from formatting import topology
from perfmodel.config import Training

DETAILS = "Experiment details"
HEALTH = "KPIs and initial hypothesis"
IDENTIFICATION = "Ops and roofline"
CORRELATION = "Correlation and structured analysis"

SECTIONS = (DETAILS, HEALTH, IDENTIFICATION, CORRELATION)

#: Sums below this share are left out of a sentence.
LEAST_SHARE = 1e-4

_ALONE = "Initial hypothesis from the KPIs alone:"

_KPI_WORDS = {
    "duty_cycle": "Device duty cycle",
    "idle": "Idle",
    "communication": "Communication",
    "input": "Input",
    "hbm_utilization": "HBM bandwidth utilisation",
    "flops_utilization": "FLOPs utilisation",
    "mfu": "MFU",
    "goodput": "Goodput over the profiled window",
    "communication_exposed": "Exposed communication",
    "memory_peak_share": "Peak memory ÷ capacity",
    "stragglers": "Lag of the slowest core",
}


def write(facts: Facts, bottleneck: Bottleneck, findings: tuple[Finding, ...]) -> dict[str, list[str]]:
    return {
        DETAILS: [say("Recording: {}", facts.recording.line), *details(facts)],
        HEALTH: [*health(facts), _hypothesis(facts)],
        IDENTIFICATION: _ops(facts),
        CORRELATION: _correlation(facts, bottleneck, findings),
    }


def details(facts: Facts) -> list[str]:
    """The run: hardware, mesh, model and training."""
    config = facts.config
    said: list[str] = []
    if config:
        hardware = config.hardware
        slices = f", {hardware.slices} slices" if hardware.slices > 1 else ""
        said.append(
            f"Hardware: {hardware.chip}, topology {topology(hardware.topology)}{slices}, {hardware.chips} chips."
        )
        said.append(f"Mesh: {config.mesh.text()}.")
        said.append(
            f"Model: {config.model.name or 'custom model'}, {config.model.layers} layers."
            if config.model
            else "Model: not given."
        )
        said.append(training_line(config.training))
    else:
        said.append("Configuration: not given, so mesh axes and MFU are unknown.")
    return said


def training_line(training: Training, given: Collection[str] | None = None) -> str:
    """The training in a sentence.  given: keys that the configuration states; what is none of them is a default."""

    def value(key: str, before: str = "") -> str:
        default = "" if given is None or key in given else " (default)"
        return f"{before}{getattr(training, key)}{default}"

    batch = f"global batch {training.global_batch} sequences" if training.global_batch else "batch not given"
    length = f"sequence length {training.seq_len:,}" if training.seq_len else "sequence length not given"
    words = [batch, length, value("precision"), value("weight_sharding", "weights "), value("remat", "remat ")]
    return f"Training: {', '.join(words)}."


def mark_defaults(
    report: Mapping[str, Sequence[str]], training: Training, given: Collection[str]
) -> dict[str, list[str]]:
    """The report with the training's defaults marked: what a file states, only the Analyzer's caller knows."""
    marked = {heading: list(lines) for heading, lines in report.items()}
    marked[DETAILS] = [
        training_line(training, given) if line == training_line(training) else line for line in marked.get(DETAILS, ())
    ]
    return marked


def health(facts: Facts, known_only: bool = False) -> list[str]:
    """Each KPI; one that was not measured with the reason, unless only the known ones are asked for."""
    said: list[str] = []
    if facts.step_time_s:
        spread = facts.kpis.get("step_time_spread")
        more = say(", spread {}", _kpi(facts, "step_time_spread")) if spread else ""
        said.append(say("Step time: {}{}.", _kpi(facts, "step_time_s", "s"), more))
    elif not known_only:
        said.append(f"Step time: not measured ({_reason(facts, 'step_time_s', 'no step markers')}).")
    for key, words in _KPI_WORDS.items():
        value = facts.kpis.get(key)
        if value is not None:
            said.append(say("{}: {}.", words, _kpi(facts, key)))
        elif not known_only and key not in ("communication_exposed", "memory_peak_share", "stragglers"):
            said.append(f"{words}: not measured ({_reason(facts, key, 'not in the profile')}).")
    return said


def _kpi(facts: Facts, key: str, unit: str = "share") -> Value:
    origin = "computed" if key in COMPUTED else "measured"
    words = _KPI_WORDS.get(key, key.removesuffix("_s").replace("_", " "))
    return Value(words, facts.kpis.get(key), unit, origin, field=f"kpi-{key}")


def _reason(facts: Facts, key: str, otherwise: str) -> str:
    """Why a KPI is missing, to stand within a sentence."""
    reason = facts.not_measured.get(key, otherwise).removesuffix(".")
    return reason[:1].lower() + reason[1:] if reason.split(" ")[0].istitle() else reason


def _hypothesis(facts: Facts) -> str:
    """What the KPIs alone would say; the ops may prove it wrong."""
    kpis = facts.kpis
    stated = facts.profile.kpis.get("communication")
    for key, words in (("input", "the input pipeline"), ("idle", "idle time")):
        once = facts.once if key == "idle" else 0.0
        if (kpis.get(key) or 0.0) - once >= LOST:
            return f"{_ALONE} {words} limits the step."
    if (stated or 0.0) >= LOST:
        return f"{_ALONE} communication limits the step."
    if kpis.get("duty_cycle") is None:
        return f"{_ALONE} none; the duty cycle was not measured."
    hbm, flops = kpis.get("hbm_utilization"), kpis.get("flops_utilization")
    if hbm is not None and flops is not None and hbm > flops:
        return f"{_ALONE} the device is busy and closer to its HBM roof than to its compute roof."
    return f"{_ALONE} the device is busy with its own ops, neither waiting nor in communication."


def _bound(label: str | None) -> str:
    """`HBM-bound`, `compute-bound`, `limit unknown`."""
    if not label or label.lower() == "unknown":
        return "limit unknown"
    return f"{label[0].lower() + label[1:] if label[1:].islower() else label}-bound"


def _ops(facts: Facts) -> list[str]:
    if not facts.ops:
        return ["The profile lists no ops."]
    said: list[str] = []
    for rank, fact in enumerate(facts.ops[:5], start=1):
        op, sent = fact.op, fact.collective

        def of(column: str, value: float, unit: str = "share", origin: str = "measured", rank: int = rank) -> Value:
            return Value(column.replace("_", " "), value, unit, origin, field=f"op-{rank}-{column}")

        share = of("time_share", fact.share)
        parts: list[str] = [say("{}. {} ({}): {} {}", rank, op.name, op.category, share, facts.base)]
        if sent and sent.axis:
            axis = sent.axis
            parts.append(f"on {axis if isinstance(axis, str) else ' and '.join(axis)}")
        if sent and sent.achieved_bytes_per_s and sent.possible_bytes_per_s:
            achieved = of("achieved_bytes_per_s", sent.achieved_bytes_per_s, "bytes_per_s", "computed")
            possible = of("possible_bytes_per_s", sent.possible_bytes_per_s, "bytes_per_s", "computed")
            parts.append(say("{} of {} possible", achieved, possible))
        parts.append(_bound(op.bound_by))
        if op.roofline_efficiency is not None:
            parts.append(say("roofline efficiency {}", of("roofline_efficiency", op.roofline_efficiency)))
        said.append(join(", ", parts) + ".")
    # An op that runs outside the steps counts here, and not in the breakdown.
    over = f"{facts.base}, averaged over the recording" if facts.step_time_s else facts.base
    for column in ("family", "module"):
        sums: dict[str, float] = {}
        for fact in facts.ops:
            if name := getattr(fact, column):
                sums[name] = sums.get(name, 0.0) + fact.share
        # What rounds to nothing is no news: `control 0.000279 %`.
        largest = [item for item in sorted(sums.items(), key=lambda item: -item[1])[:6] if item[1] >= LEAST_SHARE]
        if largest:
            parts = [
                say("{} {}", name, Value(name, share, "share", "measured", field=f"group-{column}-{name}"))
                for name, share in largest
            ]
            said.append(say("By {}: {} {}.", column, join(", ", parts), over))
    if overlapping(facts.profile):
        said.append("Ops of several streams overlap: times and shares count overlapping time once.")
    if facts.thin:
        listed = Value("listed ops", facts.coverage, "share", "computed", field="listed")
        said.append(say("These ops account for {} of op time; the rest is not in the profile.", listed))
    return said


def terms(shares: Mapping[str, float], origin: str = "computed") -> Sentence:
    """`compute 41.6 %, hbm 20.1 %`: terms of the breakdown, those that round to nothing left out."""
    rows = (
        say("{} {}", bar_label(bar), Value(bar_label(bar), value, "share", origin, field=f"term-{bar}"))
        for bar, value in shares.items()
        if value >= 0.0005
    )
    return join(", ", rows)


def _correlation(facts: Facts, bottleneck: Bottleneck, findings: tuple[Finding, ...]) -> list[str]:
    said = [bottleneck.statement, *bottleneck.contradictions]
    if facts.shares and not facts.thin:
        said.append(say("Breakdown {}: {}.", facts.base, terms(facts.shares)))
    talking = facts.collectives
    if talking and not facts.thin:
        waiting = total_share(op for op in talking if op.collective and op.collective.part == "done")
        if waiting >= 0.0005:
            value = Value("waiting for asynchronous collectives", waiting, "share", "measured", field="waiting")
            said.append(say("Waiting for asynchronous collectives accounts for {} {}.", value, facts.base))
    for finding in findings:
        bound = " " + finding.impact if finding.saving_share is not None else ""
        said.append(say("{}. {}{}", finding.title, finding.insight, bound))
    if not findings:
        said.append("No rule found a significant cost.")
    return said
