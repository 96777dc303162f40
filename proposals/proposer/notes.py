"""Notes on all proposals of a run: their basis, assumptions, mismatches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from experiments.sentences import say
from experiments.step_profile import MODEL, PROFILE, StepProfile
from formatting import listed, number
from perfmodel.calibration import Calibration
from perfmodel.config import ExperimentConfig
from perfmodel.prediction import predict as predict_alone
from perfmodel.price import Evidence
from proposals.constraints import Constraints
from proposals.plan import Predicted
from proposals.proposer import effects, from_step_time
from proposals.proposer.choose import PROPOSALS
from proposals.proposer.observed import Observed

#: How the note begins that says with what a run without a model was priced.
MODEL_UNKNOWN = "The model is unknown:"


class Run(Protocol):
    """What is known of a run (`Pricer`)."""

    profile: StepProfile
    config: ExperimentConfig
    observed: Observed
    exchange_unrecorded: str
    recomputes_nothing: bool
    calibration: Calibration
    evidence: Evidence
    missing: tuple[str, ...]


def notes(run: Run, asked: Constraints, baseline: Predicted) -> tuple[str, ...]:
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
    ran = (
        "it ran: model, batch, sequence length, remat or precision do not match the profile, or the memory model is off"
    )
    memory = baseline.hbm_per_chip_bytes
    if memory and memory.headroom < 0:
        needed = effects.memory_of(memory, "plan.baseline")
        said.append(
            say(
                "The current configuration is predicted to need {} of {} usable memory per chip, yet {}. Correct the "
                "configuration first; until then, any candidate that needs no more than it counts as fitting.",
                *needed,
                ran,
            )
        )
    elif not run.missing and run.observed.basis != MODEL and predict_alone(run.config).fits is False:
        said.append(
            f"By the model alone the current configuration needs more than the usable memory per chip, yet {ran}. "
            "Memory of all configurations is corrected so that this one fits."
        )
    if asked.memory_margin and run.missing and not run.evidence.memory.has_peak:
        said.append(
            "The memory margin could not be checked: it needs model, batch and sequence length, or a measured peak."
        )
    if "model" in run.calibration.assumed and run.observed.basis == PROFILE:
        said.append(_assumed(run))
    if run.recomputes_nothing:
        said.append(
            f"The configuration has remat `{run.config.training.remat}`, but the profile shows no recompute; "
            "the current configuration is priced without it."
        )
    return tuple(said)


def few(count: int) -> tuple[str, ...]:
    """How many configurations are worth a trial, where they are fewer than three."""
    if count >= PROPOSALS:
        return ()
    which = ("No other configuration is", "One configuration is", "Two configurations are")[count]
    return (f"{which} worth a trial: nothing else that is legal is likely to gain enough.",)


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
