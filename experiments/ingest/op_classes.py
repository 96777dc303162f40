"""What kind of op an event is: compute, collective, host transfer, input, output or control flow."""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from pathlib import Path

from experiments.hlo.host_memory import host_transfer_bytes
from experiments.ingest.planes import stat_ids, stat_value
from experiments.xplane import XPlane

#: Names of kernels and framework ops that exchange data between devices.
_TABLE = tomllib.loads((Path(__file__).parent / "communication.toml").read_text())["library"]
#: (kernel names, kind where it is one for all) by library, in the order of the table.
LIBRARIES = tuple((re.compile(library["kernels"], re.I), library.get("kind")) for library in _TABLE)
COLLECTIVE_KERNEL = re.compile("|".join(f"(?:{library['kernels']})" for library in _TABLE), re.I)
#: Framework ops that launch nothing but communication.
COLLECTIVE_OP = re.compile("|".join(f"(?:{library['ops']})" for library in _TABLE if "ops" in library), re.I)
#: Parts of a step in the order in which time is assigned: ops concurrent with compute cost nothing.
PARTS = ("compute", "collective", "host_transfer", "input", "output")
CONTROL = "control"

_COLLECTIVE = (
    r"all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|collective-broadcast|collective-matmul-comm"
)
_COLLECTIVE_CATEGORY = re.compile(rf"{_COLLECTIVE}|^(megacore )?(send|recv)(-done)?$")
_COLLECTIVE_NAME = re.compile(rf"^(ragged-)?({_COLLECTIVE}|async-collective|(send|recv)(-done)?(\.\d+)?$)")
#: As the tracers of CUPTI and ROCm name copies between host and device.
_HOST_COPY = re.compile(r"^(Memcpy|Copy) ?(H2D|D2H|HToD|DToH|HostToDevice|DeviceToHost)", re.I)
_CONTROL = re.compile(r"^(while|conditional|call)([.\d-]|$)")
_FUSED_COLLECTIVE_NAME = re.compile(r"^async-collective")


@lru_cache(maxsize=65536)
def op_class(name: str, category: str) -> str:
    """`compute`, `collective`, `input`, `output` or `control` (loops and calls, whose ops are listed themselves).

    The category decides where there is one: a matmul fused with an all-gather is named after it and is compute.
    """
    category = category.lower()
    if category in ("while", "conditional", "call") or (not category and _CONTROL.match(name)):
        return CONTROL
    if "infeed" in category or name.startswith("infeed"):
        return "input"
    if "outfeed" in category or name.startswith("outfeed"):
        return "output"
    if category:
        fused = _FUSED_COLLECTIVE_NAME.match(name)
        return "collective" if _COLLECTIVE_CATEGORY.search(category) or fused else "compute"
    return "collective" if _COLLECTIVE_NAME.match(name) else "compute"


def classes(plane: XPlane) -> dict[int, tuple[str, str]]:
    """(op name, class) by event metadata id.

    Copies to and from host memory are `host_transfer`: on a TPU by the memory space in their HLO, on a GPU by kind.
    """
    categories = stated(plane, "hlo_category")
    result: dict[int, tuple[str, str]] = {}
    on_gpu = ":GPU:" in plane.name
    for key, meta in plane.event_metadata.items():
        name = meta.display_name or meta.name
        kind = op_class(name, categories.get(key, ""))
        if on_gpu and kind == "compute" and COLLECTIVE_KERNEL.search(meta.name):
            kind = "collective"
        if kind == "compute" and (
            host_transfer_bytes(meta.name) is not None or (on_gpu and _HOST_COPY.match(meta.name))
        ):
            kind = "host_transfer"
        result[key] = (name, kind)
    return result


def stated(plane: XPlane, stat: str) -> dict[int, str]:
    """The text of this stat of each op that has it, as its category or program, by event metadata id."""
    wanted = stat_ids(plane, stat).get(stat)
    values = ((key, own) for key, meta in plane.event_metadata.items() for own in meta.stats)
    return {key: str(stat_value(plane, own)) for key, own in values if own.metadata_id == wanted}
