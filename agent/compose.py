"""What the loop says: to the model about its answer, to the user about the end of a run."""

from __future__ import annotations

from collections.abc import Sequence

from agent.limits import Limits
from formatting import dollars, limit

LAST_TURN = (
    "(From the program that runs you, not from the user:) No further tool can be called. "
    "Answer now from the results that you have, and say what you could not find out."
)
NO_CALLS_LEFT = "The limit of tool calls is reached; answer from the results that you have."
CUT_OFF = "The answer was cut off because it is too long; answer more briefly."
EMPTY = "The answer is empty."
NOTHING = "(no answer)"
CANCELLED = "The run was stopped."


def complaint(complaints: Sequence[str]) -> str:
    listed = "\n".join(f"{number}. {each}" for number, each in enumerate(complaints, 1))
    return (
        "(From the program that runs you, not from the user:) Your answer was not accepted:\n"
        f"{listed}\nGive the whole answer again with these points corrected. Do not mention this message."
    )


def bound(reason: str, limits: Limits) -> str:
    """Which bound was reached, for the user."""
    limits_named = {
        "turns": f"{limits.turns} answers of the language model",
        "tool_calls": f"{limits.tool_calls} tool calls",
        "tokens": f"{limits.tokens:,} tokens",
        "time": limit(limits.time_s, "s"),
        "money": dollars(limits.cost_usd or 0.0),
    }
    return f"The language model gave no answer within the limit of {limits_named[reason]}."


def rejected(repairs: int, complaints: Sequence[str]) -> str:
    sent = f" and was sent back {repairs} time{'s' if repairs > 1 else ''}" if repairs else ""
    first = " ".join(complaints[0].split())
    return f"The language model's answer was not accepted{sent}: {first[:300]}"
