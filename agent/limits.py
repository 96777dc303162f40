"""What a run may spend, what a model charges, and the count of both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from agent.messages import Usage

#: Characters per token where a server does not count: English prose has about 4, JSON and numbers fewer.
CHARS_PER_TOKEN = 4
Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Price(BaseModel):
    """Hold the price of a model, as an operator writes it: USD per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: Usd
    output: Usd

    def cost_usd(self, usage: Usage) -> float:
        """Return what tokens cost, as if none were read from the server's cache."""
        return (usage.tokens_in * self.input + usage.tokens_out * self.output) / 1e6


@dataclass(frozen=True)
class Limits:
    """Bounds of one run.

    turns: model responses.  tool_calls: of the whole run.  calls_per_turn: of one
    response; further ones are dropped.  tokens: in and out, of all requests.  time_s: wall time;
    a tool that runs is not interrupted.  cost_usd: binds only where the model's price is known.  repairs: how often an
    answer is sent back.  retries: how often one request is repeated after a failure.  answer_tokens: of one response.
    """

    turns: int = 12
    tool_calls: int = 40
    calls_per_turn: int = 16
    tokens: int = 200_000
    time_s: float = 180.0
    cost_usd: float | None = None
    repairs: int = 2
    retries: int = 3
    answer_tokens: int = 16_000


@dataclass
class Meter:
    """What a run has spent so far."""

    limits: Limits
    price: Price | None
    started_s: float
    turns: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)

    @property
    def cost_usd(self) -> float | None:
        return None if self.price is None else self.price.cost_usd(self.usage)

    def remaining_s(self, now_s: float) -> float:
        return self.started_s + self.limits.time_s - now_s

    def allowance(self, prompt_chars: int) -> tuple[int, Literal["tokens", "money"]]:
        """Tokens that the next response may have, and what binds if they are too few; the prompt is estimated."""
        prompt_tokens = prompt_chars // CHARS_PER_TOKEN
        by_tokens = min(self.limits.answer_tokens, self.limits.tokens - self.usage.tokens - prompt_tokens)
        if self.price is None or self.limits.cost_usd is None:
            return by_tokens, "tokens"
        left_usd = self.limits.cost_usd - self.price.cost_usd(self.usage + Usage(tokens_in=prompt_tokens))
        if self.price.output <= 0:
            return (0, "money") if left_usd < 0 else (by_tokens, "tokens")
        by_money = int(left_usd * 1e6 / self.price.output)
        return (by_money, "money") if by_money < by_tokens else (by_tokens, "tokens")
