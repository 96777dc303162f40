"""What a language model is shown of a campaign: OptiCo's view of the pool, and the price of any candidate, as tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from agent.tools import ToolError
from campaigns.engine.acquisition import Acquisition, ScoredCandidate
from campaigns.engine.pool import Trial
from campaigns.engine.space import NoCandidateError, Space, key_of, parameters_of, settings_of
from perfmodel.config import ConfigError, ExperimentConfig
from perfmodel.roofline import mfu
from proposals.agents.tool_result import present
from proposals.agents.tools.shared import Configuration
from proposals.failures import CAUSES

#: Trials that are shown: the fastest, and the newest.  Candidates of the built-in acquisition.
BEST, LAST, NEXT = 5, 8, 8
#: Values of a parameter that are shown.
MOST_VALUES = 24


@dataclass(frozen=True)
class Question:
    """What a model is asked.

    numbers: of the trials of the pool, in their order.  most: trials that it may ask for.  left: of the budget, by what
    it is counted in.  modelled: whether times of trials are themselves predicted.
    """

    acquisition: Acquisition
    space: Space
    numbers: Sequence[int]
    most: int
    left: Mapping[str, float]
    modelled: bool = False


class Tools:
    """Tools of the model."""

    def __init__(self, question: Question) -> None:
        self.question = question

    def campaign(self) -> dict[str, Any]:
        """State of the campaign: current configuration, trials, space, budget and the built-in
        candidates."""
        q = self.question
        config, pool = q.space.config, q.acquisition.pool
        tokens = q.acquisition.candidates.tokens
        order = sorted(pool.done, key=lambda trial: (trial.step_time_s or 0.0) / tokens[trial.candidate])
        failures = Counter(CAUSES[t.failure.cause] if t.failure else CAUSES["unknown"] for t in pool.failed)
        return present(
            {
                "current": _current_configuration(config) | self._ran_as(config),
                "best_trials": [self._trial(trial) for trial in order[:BEST]],
                "last_trials": [self._trial(trial) for trial in pool.trials[-LAST:]],
                "failed_trials_by_cause": dict(failures),
                "trials": len(pool),
                "space": self._space(),
                "budget_left": dict(q.left),
                "built_in_candidates": [self.priced(q.acquisition.choice(row)) for row in q.acquisition.first(NEXT)],
                "ask_for_at_most": q.most,
            }
        )

    def predict(self, asked: Configuration) -> dict[str, Any]:
        """A configuration as the built-in acquisition sees it: step time, memory, expected improvement over the best
        trial so far, chance to run; or the rule that refuses it."""
        try:
            row = self.question.space.find(asked.candidate(self.question.space.config))
        except (NoCandidateError, ConfigError) as refused:
            raise ToolError(str(refused)) from None
        return self.priced(self.question.acquisition.choice(row))

    def priced(self, choice: ScoredCandidate) -> dict[str, Any]:
        """A candidate with what is predicted of it."""
        c, row = self.question.acquisition.candidates, choice.candidate
        return present(
            {
                **self._configuration(row),
                "step_time_s": _rounded(choice.step_time_s),
                "speedup_over_best": _rounded(self._best_s / choice.step_time_s) if self._best_s else None,
                "step_time_low80_s": _rounded(choice.low_s),
                "step_time_high80_s": _rounded(choice.high_s),
                "expected_improvement_share": _rounded(choice.gain),
                "faster_than_best_probability_share": _rounded(choice.faster),
                "runs_probability_share": _rounded(choice.runs),
                "peak_memory_bytes": _rounded(float(c.peak_bytes[row])),
                "refused": self.question.acquisition.refused(row),
            }
        )

    @property
    def _best_s(self) -> float | None:
        best = self.question.acquisition.best
        return best.step_time_s if best is not None else None

    def _ran_as(self, config: ExperimentConfig) -> dict[str, Any]:
        """Step time of the current configuration, measured by the campaign."""
        row = self.question.space.by_key.get(key_of(config))
        ran = next((t for t in self.question.acquisition.pool.done if t.candidate == row), None)
        of = "predicted_" if self.question.modelled else ""
        return {f"{of}step_time_s": _rounded(ran.step_time_s)} if ran is not None else {}

    def _configuration(self, row: int) -> dict[str, Any]:
        config, base = self.question.acquisition.candidates.configs[row], self.question.space.config
        now, then = settings_of(config), settings_of(base)
        return {
            "mesh": config.mesh.to_json(),
            "changes": {key: value for key, value in now.items() if value != then[key]},
        }

    def _trial(self, trial: Trial) -> dict[str, Any]:
        q = self.question
        place = next(at for at, other in enumerate(q.acquisition.pool.trials) if other is trial)
        failure, config = trial.failure, q.acquisition.candidates.configs[trial.candidate]
        of = "predicted_" if q.modelled else ""
        return present(
            {
                "trial": q.numbers[place],
                **self._configuration(trial.candidate),
                "state": trial.state,
                f"{of}step_time_s": _rounded(trial.step_time_s),
                f"{of}mfu_share": _rounded(mfu(config, trial.step_time_s, config.training.precision)),
                f"{of}peak_memory_bytes": _rounded(trial.peak_bytes),
                "cause": failure and CAUSES[failure.cause],
                "cause_confidence_share": failure and failure.confidence,
                "says": failure and str(failure.sentence)[:300],
            }
        )

    def _space(self) -> dict[str, Any]:
        """The parameters with the values that legal candidates have."""
        c = self.question.acquisition.candidates
        values: dict[str, dict[Any, None]] = {}
        rows = [int(row) for row in np.flatnonzero(c.legal)]
        for row in rows:
            for name, value in parameters_of(c.configs[row]).items():
                values.setdefault(name, {})[tuple(value) if isinstance(value, list) else value] = None
        return {
            "candidates": len(rows),
            "values": {
                name: sorted(distinct_values, key=lambda value: str(value).zfill(9))[:MOST_VALUES]
                for name, distinct_values in values.items()
                if name != "xla_flags"
            },
        }


def _rounded(value: float | None) -> float | None:
    """To five digits: more cost tokens without adding information."""
    return None if value is None else float(f"{value:.5g}")


def _current_configuration(config: ExperimentConfig) -> dict[str, Any]:
    hardware = config.hardware
    return present(
        {
            "model": {k: v for k, v in asdict(config.model).items() if v and k != "source"} if config.model else None,
            "chip": hardware.chip,
            "topology": list(hardware.topology),
            "slices": hardware.slices,
            "mesh": config.mesh.to_json(),
            "training": present({"seq_len": config.training.seq_len, **settings_of(config)}),
        }
    )
