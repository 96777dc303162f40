"""What a profile says about the configuration that ran, and where a configuration contradicts it.  Pure: no Django.

`facts_of(profile)` reads the profile; `contradictions(facts, data, config)` holds a configuration against it;
`prefilled` writes what the profile tells as a configuration.  Nothing is guessed: what a profile does not say is
absent, with the reason.
"""

from experiments.consistency.check import contradictions
from experiments.consistency.facts import Contradiction, Fact, Facts
from experiments.consistency.prefill import Mark, Prefilled, as_table, model_of, prefilled
from experiments.consistency.read import facts_of, precision_of
from experiments.consistency.recorded import exchange_unrecorded

__all__ = [
    "Contradiction", "Fact", "Facts", "Mark", "Prefilled", "as_table", "contradictions",
    "exchange_unrecorded", "facts_of", "model_of", "precision_of",
    "prefilled",
]  # fmt: skip
