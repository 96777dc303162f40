"""What a profile says about the configuration that ran, and where a configuration contradicts it.  Pure: no Django.

`facts_of(profile)` reads the profile; `contradictions(facts, data)` holds a configuration against it; `prefilled` writes
what the profile tells as a configuration.  Nothing is guessed: what a profile does not tell is absent, with the reason.
"""

from experiments.consistency.check import contradictions
from experiments.consistency.facts import Contradiction, Fact, Facts
from experiments.consistency.prefill import Mark, Prefilled, prefilled, told
from experiments.consistency.read import facts_of

__all__ = ["Contradiction", "Fact", "Facts", "Mark", "Prefilled", "contradictions", "facts_of", "prefilled", "told"]
