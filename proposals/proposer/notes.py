"""Notes on all proposals of a run: their basis, assumptions, mismatches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from experiments.sentences import say
from experiments.step_profile import MODEL, PROFILE, StepProfile
from formatting import listed, number
from perfmodel.calibration import Calibration
from perfmodel.config import ExperimentConfig
from perfmodel.price import Evidence
from perfmodel.step_time import predict as predict_alone
from proposals.constraints import Constraints
from proposals.plan import Memory
from proposals.proposer import effects, from_step_time
from proposals.proposer.observed import Observed

#: How the note begins that says with what a run without a model was priced.
MODEL_UNKNOWN = "The model is unknown:"


class Run(Protocol):
    """What is known of a run (`Pricer`)."""

    profile: StepProfile
    config: ExperimentConfig
    observed: Observed
    exchange_unrecorded: str
    trains: bool
    recomputes_nothing: bool
    calibration: Calibration
    evidence: Evidence
    missing: tuple[str, ...]


def notes(run: Run, asked: Constraints) -> tuple[str, ...]:
    """Sentences on the run, its profile and what could not be checked."""
    said: list[str] = []
    if run.observed.basis in from_step_time.NOTES:
        said.append(from_step_time.NOTES[run.observed.basis])
    said += [run.exchange_unrecorded] if run.exchange_unrecorded else []
    if run.observed.stand_in:
        said.append(
            f"The profile was recorded on {run.profile.device.kind or 'another chip'}, but the configuration "
            f"names {run.config.hardware.chip}: gains are predicted for {run.config.hardware.chip} from measured times "
            "that transfer poorly between chips."
        )
    alone = predict_alone(run.config).hbm_per_chip_bytes if not run.missing else None
    if alone and run.observed.basis != MODEL and (alone["total"] or 0.0) > (alone["capacity"] or 0.0):
        said.append(
            say(
                "The model alone predicts {} of {} usable memory per chip for the current configuration, yet it ran: "
                "model, batch, sequence length, remat or precision do not match the profile, or the memory model is "
                "off. Memory of all configurations is corrected so that this one fits.",
                *effects.memory_of(Memory(**{name: value or 0.0 for name, value in alone.items()}), "plan.baseline"),
            )
        )
    if asked.memory_margin and run.missing and not run.evidence.memory.has_peak:
        said.append(
            "The memory margin could not be checked: it needs model, batch and sequence length, or a measured peak."
        )
    if not run.trains:
        said.append(
            "The profile has no backward pass: it is inference, not a training step, so rematerialisation, weight and "
            "optimizer sharding and micro-batches are not proposed."
        )
    if "model" in run.calibration.assumed and run.observed.basis == PROFILE:
        said.append(_assumed(run))
    if run.recomputes_nothing:
        said.append(
            f"The configuration has remat `{run.config.training.remat}`, but the profile shows no recompute; "
            "the current configuration is priced without it."
        )
    return tuple(said)


def slower(ranks: Sequence[int]) -> tuple[str, ...]:
    """Which proposals only complete the three."""
    if not ranks:
        return ()
    which = f"Proposal {ranks[0]} is" if len(ranks) == 1 else f"Proposals {listed([str(rank) for rank in ranks])} are"
    return (f"{which} predicted to be slower than the current configuration.",)


def _assumed(run: Run) -> str:
    """What candidates are priced with where nobody said what was trained."""
    filled = run.calibration.baseline
    shape, training, given = filled.model, filled.training, run.config.training
    assert shape is not None
    assumed = [f"a dense LLaMA-3-like shape with {shape.layers} layers of width {number(shape.d_model)}"]
    wanted = ["model"]
    if given.global_batch is None:
        assumed.append(f"global batch {number(training.global_batch or 0)}")
        wanted.append("batch")
    if given.seq_len is None:
        assumed.append(f"sequence length {number(training.seq_len or 0)}")
        wanted.append("sequence length")
    return (
        f"{MODEL_UNKNOWN} what the profile does not show is priced for {listed(assumed)}. State the "
        f"{listed(wanted)} for better predictions."
    )
