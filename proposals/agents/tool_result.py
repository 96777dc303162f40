"""Results of tools: JSON that is read by attribute, whose keys give unit and subject and whose rows give their origin.

The same value is used in the process, stored, and read again from what was stored: there is no type to read it into.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

#: Where a row says what it is (`about`); it is stored, and no model reads it.
ABOUT = "_about"


@dataclass(frozen=True)
class Is:
    """Describe the values under a key.  subject: in words; unit, origin: as in `values.Value`, None and "" as of the
    row."""

    subject: str | None = None
    unit: str | None = None
    origin: str = ""


#: What the values under a key are, where the key does not say so itself.
KEYS: Mapping[str, Is] = {
    "saving_s": Is("at most saved"),
    "saving_share": Is("at most saved, of the step"),
    "left_s": Is("step at least, if it were gone", origin="predicted"),
    "speedup_per_token": Is("speed-up per token", "speedup"),
    "speedup_per_chip": Is("speed-up per token and chip", "speedup"),
    "speedup_low95": Is("lower end of the 95 % interval of the speed-up"),
    "speedup_high95": Is("upper end of the 95 % interval of the speed-up"),
    "speedup": Is("speed-up per token", "speedup"), "over_this": Is("speed-up per token over it", "speedup"),
    "expected_here": Is("expected speed-up here", "speedup", "predicted"),
    "runs_and_faster_probability": Is("chance that it runs and is faster per token", "chance"),
    "confidence_share": Is("confidence", "probability"), "spread": Is("spread from run to run", "share"),
    "memory_bytes": Is("memory per chip", origin="predicted"),
    "headroom_bytes": Is("memory per chip left", origin="predicted"),
    "capacity_bytes": Is("usable memory per chip", origin="stated"),
    "measured_peak_bytes": Is("measured peak of memory", origin="measured"),
    "predicted_bytes": Is(origin="predicted"), "parts_bytes": Is("", origin="predicted"),
    "predicted_step_time_s": Is("step time", origin="predicted"), "before_s": Is(origin="measured"),
    "terms_s": Is("term"), "change_s": Is("change of term"), "parts_s": Is(""), "parts_share": Is("share of"),
    "mxu_utilization": Is("MXU utilisation, a hardware counter", "share"), "shares": Is("", "share"),
    "share": Is("share of the step", "share"), "peak_share": Is("share of the peak"),
    "communication_share": Is("communication"), "waiting_share": Is("waiting for input, host or nothing"),
    "work_share": Is("work on the chip"),
    "tokens_per_s_per_chip": Is(unit="tokens_per_s", origin="computed"),
    "efficiency": Is("roofline efficiency", "share", "computed"), "possible_bytes_per_s": Is(origin="computed"),
    "ridge_flops_per_byte": Is(origin="computed"), "mfu": Is("MFU", "share"),
    "own_mfu": Is("MFU of this run", "share", "measured"), "lowest_mfu": Is("lowest MFU", "share"),
    "median_mfu": Is("median MFU", "share"), "highest_mfu": Is("highest MFU", "share"),
    "count": Is(unit="count"), "matching": Is(unit="count"),
    "recorded_steps": Is(unit="count"), "recorded_cores": Is(unit="count"),
    "meshes_considered": Is(unit="count", origin="computed"),
    "candidates_priced": Is(unit="count", origin="computed"), "runs": Is("runs", "count"),
    "tokens_per_chip": Is(unit="tokens"), "tokens_per_slice": Is(unit="tokens"),
    "compute_bound_from": Is("tokens that make a matmul compute-bound", "tokens"),
    "fsdp_hidden_from": Is("tokens per chip that hide FSDP on one axis", "tokens"),
    "dcn_hidden_from": Is("tokens per slice that hide gradients over DCN", "tokens"),
    "mixed_hidden_from": Is("tokens per chip that hide FSDP with a tensor axis", "tokens"),
    "tensor_axis_limit": Is("tensor shards that hide behind compute", "count"),
    "best_fsdp_shards": Is("FSDP shards that communicate least", "count"),
    "affects_s": Is("time that it can affect"),
}  # fmt: skip


class Result(dict[str, Any]):
    """What a tool returns, or a row of it.  A member is read as an attribute too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def about(origin: str = "", subject: str = "", href: str = "", **origins: str) -> dict[str, str]:
    """Return what the values of a row are, for its key `ABOUT`; empty: as of the result that holds it.

    origin: of `values.ORIGINS`; origins: of single keys.  subject: in words, such as `proposal 2`.  href: where the
    product shows it, as `proposal:2`, `finding:1`, `op:KEY`, `kpi:mfu`, `passage:ID` or `record:ID`.
    """
    return {"origin": origin, "subject": subject, "href": href, **origins}


def taken(item: object, names: str, **more: Any) -> Result:
    """Return a row with an item's attributes, named with spaces between, and `more`."""
    return Result({name: getattr(item, name) for name in names.split()}, **more)


def about_of(item: object) -> Mapping[str, str]:
    """Return what a row says of itself; empty where it says nothing."""
    found = item.get(ABOUT) if isinstance(item, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def members_of(item: object) -> Iterator[tuple[str, Any]]:
    """Yield (key, value) of what a result holds; nothing for lists and values."""
    if isinstance(item, Mapping):
        yield from ((str(key), value) for key, value in item.items() if key != ABOUT)


def to_json(value: Any) -> Any:
    """Return a result without what is empty or not known, with keys that paths can name.

    Of a row that says what it is, `key` goes: it is long, and names what nobody asks for by it.
    """
    if isinstance(value, Mapping):
        is_named = ABOUT in value
        return present({_key(k): to_json(each) for k, each in value.items() if k != "key" or not is_named})
    return [to_json(each) for each in value] if isinstance(value, list | tuple) else value


def _key(key: str) -> str:
    return written(key) if re.search("[:+, ]", key) else key


def written(key: str) -> str:
    """Return the key of a mapping as paths write it: `ici:model` is `ici_model`."""
    return re.sub(r"\W+", "_", key)


def present(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data without what is empty or not known."""
    return {key: value for key, value in data.items() if value is not None and value not in ("", [], {}, ())}
