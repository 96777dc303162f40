"""Collectives as PyTorch states them: kind, process group, message size.

Source: torch/csrc/distributed/c10d/ParamCommsUtils.hpp and libkineto/src/output_json.cpp (`Collective name`,
`In msg nelems`, `Out msg nelems`, `Group size`, `dtype`, `Process Group Name`, `… Description`, `… Ranks`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from experiments.ingest.gpu.columns import Comm
from experiments.ingest.gpu.device import Exchange
from experiments.ingest.gpu.flops import type_bytes
from experiments.ingest.gpu.kernels import stated_kind

_MOST_RANKS = 200_000
#: What PyTorch writes where the program gave no description.
_NO_NAME = ("", "undefined")


def groups_of(distributed: object) -> dict[str, tuple[int, ...]]:
    """Ranks by process group's name, from `distributedInfo`."""
    configs = distributed.get("pg_config") if isinstance(distributed, dict) else None
    ranks_by_group: dict[str, tuple[int, ...]] = {}
    for config in configs if isinstance(configs, list) else []:
        if isinstance(config, dict) and isinstance(config.get("ranks"), list):
            ranks = tuple(rank for rank in config["ranks"] if isinstance(rank, int))
            if len(ranks) == len(config["ranks"]) <= _MOST_RANKS:
                ranks_by_group[str(config.get("pg_name"))] = ranks
    return ranks_by_group


def read_comm(args: Mapping[str, Any], groups: Mapping[str, tuple[int, ...]]) -> Comm | None:
    """The collective that the arguments of an op or a kernel describe; None where they name none."""
    name = args.get("Collective name")
    if not isinstance(name, str) or not name:
        return None
    group = str(args.get("Process Group Name", ""))
    ranks = _ranks(args, groups.get(group, ()))
    size = args.get("Group size")
    size = size if isinstance(size, int) and size > 0 else len(ranks)
    kind = stated_kind(name)
    description = str(args.get("Process Group Description", ""))[:100]
    shown = group[:100] if description in _NO_NAME else description
    pattern = tuple(rank - ranks[0] for rank in ranks)
    if description in _NO_NAME and pattern:
        shown = ""  # numbers of groups differ between ranks, the pattern of ranks does not
    return Comm(Exchange(kind, shown, pattern, _payload(kind, args, size)), ranks)


def _ranks(args: Mapping[str, Any], listed: tuple[int, ...]) -> tuple[int, ...]:
    """Stated with the call unless it shortens them (`[0, 1, ...]`), else as listed, else from start and stride."""
    stated = args.get("Process Group Ranks")
    if isinstance(stated, str) and "..." not in stated and len(stated) < 8 * _MOST_RANKS:
        ranks = tuple(int(number) for number in re.findall(r"\d+", stated))
        if ranks:
            return ranks
    if listed:
        return listed
    start, stride, size = (args.get(key) for key in ("Global rank start", "Global rank stride", "Group size"))
    if not (isinstance(start, int) and isinstance(stride, int) and isinstance(size, int)):
        return ()
    regular = start >= 0 and stride > 0 and 0 < size <= _MOST_RANKS
    return tuple(range(start, start + stride * size, stride)) if regular else ()


def _payload(kind: str, args: Mapping[str, Any], size: int) -> float | None:
    """Bytes as `Op.payload_bytes`: the whole array of a gather, scatter or reduction, else what one rank holds."""
    into, out = args.get("In msg nelems"), args.get("Out msg nelems")
    element = type_bytes(str(args.get("dtype", "")))
    if not isinstance(into, int) or not isinstance(out, int) or element is None or max(into, out) <= 0:
        return None
    match kind:
        case "all-gather":
            elements = max(out, into * max(size, 1))
        case "reduce-scatter":
            elements = max(into, out * max(size, 1))
        case _:
            elements = max(into, out)
    return float(elements * element)
