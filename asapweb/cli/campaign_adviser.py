"""A language model that asks for the trials of `asap campaign`; nothing of it is recorded, since nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.events import drive
from campaigns.agents import tuner
from campaigns.agents.view import Question
from campaigns.engine.acquisition import look
from campaigns.engine.candidates import TrialCandidates
from campaigns.engine.loop import Iteration, ScoredCandidate, iterate
from campaigns.engine.pool import Pool
from campaigns.engine.requested_trials import CandidateLookup
from experiments.sentences import Sentence
from perfmodel.config import ExperimentConfig
from proposals.agents import endpoint
from proposals.constraints import Constraints


@dataclass
class TunerClient:
    """by_key: places of the candidates; constraints: None for a recorded landscape; tokens: spent so far."""

    config: ExperimentConfig
    by_key: Mapping[str, int]
    constraints: Constraints | None
    modelled: bool
    most_tokens: int
    tokens: int = 0

    def choose(self, c: TrialCandidates, pool: Pool, step: Iteration, left: int) -> tuple[ScoredCandidate, Sentence]:
        """The next trial and why: the model's, or the built-in one.  left: trials of the budget."""
        choice, provider = step.choices[0], endpoint.provider(tuner.AGENT)
        if provider is None or self.most_tokens - self.tokens < tuner.LEAST_TOKENS:
            return choice, tuner.instead(choice, f"The limit of {self.most_tokens:,} tokens is reached.")
        question = Question(
            look(c, pool), CandidateLookup(self.config, c, self.by_key, self.constraints),
            range(len(pool)), 1, {"trials": left}, self.modelled,
        )  # fmt: skip
        limits = tuner.bounds(endpoint.limits(), self.most_tokens - self.tokens)
        advice = drive(tuner.advise(question, provider, limits))
        self.tokens += advice.usage.tokens
        if not advice.granted:
            return choice, tuner.instead(choice, advice.sentence)
        granted = advice.granted[0]
        # least_gain: that it goes on has been decided.
        wanted = iterate(c, pool, least_gain=-1.0, requested=[granted.candidate]).choices[0]
        return wanted, tuner.requested(wanted, provider.model, granted.reason)
