"""What a measured proposal teaches: it becomes a record of the history by itself, failures included."""

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from typing import Any

import formatting
from diagnosis.models import DiagnosisRecord
from experiments.models import Experiment
from history import reading
from history.models import HistoryRecord
from history.record import CHANGES, Record, Side, outcome_of
from history.services import store
from perfmodel.accounting import parameters
from perfmodel.catalogue import model_to_json
from perfmodel.config import ExperimentConfig, MeshSizes, flat_sizes, framework_of
from proposals.models import Measurement, Proposal
from proposals.services.compared import Compared

logger = logging.getLogger(__name__)

#: What a training key belongs to in a record's `changes`; keys that are not here and no change of their own are other.
_CHANGE_OF = {
    "global_batch": "batch", "micro_batch": "batch", "grad_accum": "batch", "remat": "remat",
    "weight_sharding": "weight_sharding", "xla_flags": "xla_flags", "precision": "precision",
}  # fmt: skip


def keep(made: Measurement, compared: Compared) -> str:
    """Add the measured change to the team's history; the key of its record.  Once: the key follows the proposal."""
    before, after = _kpis(compared.before, compared.before_s), _kpis(compared.after, compared.after_s)
    record = _record(
        made,
        Side(made.proposal.experiment.name, *_configured(compared.before_config), before),
        Side(compared.after.run.experiment.name, *_configured(compared.after_config), after),
        compared.after_config,
        bottleneck=_bottleneck(compared.before),
    )
    if any(_on_cpu(side) for side in (compared.before, compared.after)):
        # The configuration's chip is a placeholder: it did not run, and the result says nothing about it.
        record = replace(record, chip="", topology=())
    return _add(made, record, made.experiment)


def keep_failure(made: Measurement, before: ExperimentConfig | None, proposed: ExperimentConfig | None) -> str:
    """Add a proposal that did not run to the team's history; empty where the configuration is gone."""
    if before is None or proposed is None:
        return ""
    diagnosed = DiagnosisRecord.objects.filter(run_id=made.proposal.plan.run_id).first()
    kpis = _kpis(diagnosed, made.before_step_time_s) if diagnosed is not None else {}
    record = _record(
        made,
        Side(made.proposal.experiment.name, *_configured(before), kpis),
        Side(f"{made.proposal.experiment.name}, proposal {made.proposal.rank}", *_configured(proposed)),
        proposed,
        bottleneck=_bottleneck(diagnosed) if diagnosed is not None else "",
    )
    return _add(made, record, None)


def _on_cpu(diagnosed: DiagnosisRecord) -> bool:
    profile = diagnosed.run.profile
    device = ((profile.summary if profile is not None else None) or {}).get("device") or {}
    return str(device.get("kind") or "").startswith("CPU")


def _bottleneck(diagnosed: DiagnosisRecord) -> str:
    """As diagnosed; empty where no profile said so: what was predicted is nothing to learn from."""
    return diagnosed.bottleneck if diagnosed.value.measured else ""


def _record(made: Measurement, before: Side, after: Side, config: ExperimentConfig, *, bottleneck: str) -> Record:
    proposal = made.proposal
    hardware, model = config.hardware, config.model
    changes = tuple(name for name in CHANGES if name in _changed(proposal))
    # Within the noise of both arms a ratio is nothing to learn from; the effect says what was seen.
    unclear = made.speedup is not None and made.outcome == "no_change" and outcome_of(made.speedup) != "no_change"
    return Record(
        id=key(proposal),
        title=proposal.title,
        change=_change(proposal)[: reading.LIMITS["change"]],
        changes=changes or ("other",),
        before=before,
        after=after,
        outcome=made.outcome,
        source=f"Proposal {proposal.rank} of {proposal.experiment.name}, measured by this team",
        provenance="measured",
        chip=hardware.chip,
        chips=hardware.chips,
        topology=hardware.topology,
        slices=hardware.slices,
        model_name=(model.name or "") if model is not None else "",
        parameters=float(parameters(model).total) if model is not None else None,
        shape=model_to_json(model) if model is not None else {},
        bottleneck=bottleneck,
        speedup=None if unclear else made.speedup,
        measure=f"step time {proposal.per}" if made.speedup is not None and not unclear else "",
        effect=_effect(made)[: reading.LIMITS["effect"]],
        failure=made.failure,
        caveats=tuple(made.caveats),
    )


def key(proposal: Proposal) -> str:
    """The id of the proposal's record, stable however often it is made."""
    return f"proposal-{proposal.pk}"


def _changed(proposal: Proposal) -> set[str]:
    value = proposal.value
    kinds = {_CHANGE_OF.get(name, "other") for name in value.changes}
    ran = proposal.plan.priced_with.get("mesh") or {}
    return kinds | ({"mesh"} if _sizes(ran) != _sizes(value.mesh) else set())


def _sizes(mesh: MeshSizes) -> dict[str, int]:
    """Axes larger than one, over ICI and DCN."""
    return {axis: size for axis, size in flat_sizes(mesh).items() if size != 1}


def _change(proposal: Proposal) -> str:
    """`data 4 → 16, seq 4 → 1; remat minimal`: what was changed, in one line."""
    old = _sizes(proposal.plan.priced_with.get("mesh") or {})
    value = proposal.value
    new = _sizes(value.mesh)
    axes = [f"{axis} {old.get(axis, 1)} → {new.get(axis, 1)}" for axis in dict.fromkeys([*old, *new])
            if old.get(axis, 1) != new.get(axis, 1)]  # fmt: skip
    keys = [f"{name} {' '.join(map(str, given)) if isinstance(given, list) else given}"
            for name, given in value.changes.items()]  # fmt: skip
    return "; ".join(part for part in (", ".join(axes), ", ".join(keys)) if part)


def _effect(made: Measurement) -> str:
    """The measured effect beside what was predicted, in one sentence."""
    if made.speedup is None:
        words = made.failure.replace("_", " ")
        told = made.told
        return " ".join(filter(None, [f"It did not run: {words}.", told.sentence, told.line, made.comment]))
    assert made.before_step_time_s is not None and made.after_step_time_s is not None
    said = (
        f"Step time {formatting.seconds(made.before_step_time_s)} → {formatting.seconds(made.after_step_time_s)}, "
        f"{formatting.number(made.speedup, 2)}× {made.proposal.per}"
    )
    if made.predicted_speedup is not None:
        said += f"; {formatting.number(made.predicted_speedup, 2)}× was predicted"
    return f"{said}. {made.control.get('sentence', '')}".rstrip()


def _configured(config: ExperimentConfig) -> tuple[dict[str, dict[str, int]], dict[str, str], dict[str, Any]]:
    training = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(config.training).items()}
    return (
        config.mesh.to_json(),
        dict(config.mesh.axis_roles),
        {name: value for name, value in training.items() if value is not None and value != []}
        | ({"software": framework} if (framework := framework_of(config)) else {}),
    )


def _kpis(diagnosed: DiagnosisRecord, step_time_s: float | None) -> dict[str, float | str]:
    """What was measured, as the diagnosis states it; a share above one is a wrong configuration, not a measurement."""
    diagnosis = diagnosed.value
    values: dict[str, float | str] = {
        name: value
        for name, value in diagnosis.kpis.items()
        if value is not None and (name not in reading.SHARES or 0 <= value <= 1)
    }
    if step_time_s:
        values["step_time_s"] = step_time_s
    if "mfu" in values and diagnosis.mfu_convention:
        values["mfu_convention"] = diagnosis.mfu_convention
    return values


def _add(made: Measurement, record: Record, experiment: Experiment | None) -> str:
    """The key of the stored record; empty where the database refuses it, which is our fault and costs no result."""
    try:
        added = _stored(made, record, experiment)
        if added.provenance != record.provenance:
            # An import brought a record of this id, as another installation numbers its proposals too.
            added = _stored(made, replace(record, id=f"{record.id}-here"), experiment)
    except store.RecordError:
        logger.exception("measurement %s of proposal %s is no record", made.pk, made.proposal_id)
        return ""
    return str(added.key)


def _stored(made: Measurement, record: Record, experiment: Experiment | None) -> HistoryRecord:
    return store.add(
        record,
        made.team,
        made.created_by,
        experiment_before=made.proposal.experiment,
        experiment_after=experiment,
        profile_after=made.run.profile if made.run is not None else None,
    )
