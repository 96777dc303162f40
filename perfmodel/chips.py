"""The chips the model knows, from chips.toml.  A row or a number without a source does not load."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import log
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field

from perfmodel.reading import EXACT, DataError, read_rows, shipped

PRECISIONS = ("bf16", "fp16", "fp8", "mxfp8", "nvfp4", "int8", "fp32")
Precision = Annotated[str, Field(pattern=f"^({'|'.join(PRECISIONS)})$")]

#: Where a chip has no unit for a precision, its matmuls run in the next one of this list that it has.
_FALLBACK = {
    "fp16": ("bf16",),
    "bf16": ("fp16", "fp32"),
    "fp8": ("bf16", "fp16"),
    "mxfp8": ("fp8", "bf16", "fp16"),
    "nvfp4": ("mxfp8", "fp8", "bf16", "fp16"),
    "int8": ("bf16", "fp16"),
    "fp32": ("bf16", "fp16"),
}
#: A TPU multiplies fp32 in six bf16 passes at the highest precision.
_FP32_PASSES = 6.0


Number = Annotated[int, Field(gt=0)] | Annotated[float, Field(gt=0, allow_inf_nan=False)]


#: Share of the usable HBM that a program cannot count on: XLA plans to the byte, a GPU's caching allocator fragments.
MEMORY_MARGIN = {"tpu": 0.02, "gpu": 0.05}


@dataclass(frozen=True)
class Chip:
    """One accelerator chip.  Bytes, bytes/s, FLOP/s; bandwidths one-way.

    peak_flops_per_s: dense, by precision, only where the chip has units for it (`peak` falls back).  hbm_bytes: as
    sold; hbm_usable_bytes: what the runtime leaves.  chips_per_host: chips that share a physical host and its
    network; chips_per_vm: chips of one VM, hence of one process, fewer where a host runs several VMs.  matrix_tile:
    edge of the systolic array, 0 where padding does not matter.  TPU: `ici_axes` torus axes with two neighbours
    each, `ici_link_bytes_per_s` per link; `pod` the largest slice.  GPU: `nvlink_domain` GPUs joined by NVLink at
    `nvlink_bytes_per_s` per GPU.  Fields of the other kind are 0.  device_types: names of this very part in
    profiles; families: names that it shares with other parts.
    sources: citation per field, `peak.bf16` for a peak.
    """

    __pydantic_config__ = EXACT

    name: str
    title: str
    kind: Literal["tpu", "gpu"]
    device_types: tuple[str, ...]
    peak_flops_per_s: Mapping[Precision, Annotated[float, Field(gt=0, allow_inf_nan=False)]]
    hbm_bytes: Number
    hbm_usable_bytes: Number
    hbm_bytes_per_s: Number
    dcn_bytes_per_s_per_host: Number
    host_link_bytes_per_s: Number
    chips_per_host: int
    devices_per_chip: int
    chips_per_vm: int
    matrix_tile: int = 0
    ici_axes: int = 0
    ici_link_bytes_per_s: Number = 0.0
    wrap_at: int = 0
    wrap_cube: int = 0
    pod: tuple[int, ...] = ()
    nvlink_domain: int = 0
    nvlink_bytes_per_s: Number = 0.0
    families: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def vendor(self) -> str:
        """`Google`, or the first word of a GPU's title."""
        return "Google" if self.kind == "tpu" else self.title.partition(" ")[0]

    @property
    def hbm_capacity_bytes(self) -> float:
        """Return the usable HBM (bytes) that a program can count on."""
        return self.hbm_usable_bytes * (1.0 - MEMORY_MARGIN[self.kind])

    @property
    def dcn_bytes_per_s_per_chip(self) -> float:
        """A chip's share of its host's network, bytes/s one-way."""
        return self.dcn_bytes_per_s_per_host / self.chips_per_host

    def peak(self, precision: str) -> float:
        """FLOP/s of matmuls in `precision`; of the precision they really run in where the chip lacks it."""
        used = self.runs_as(precision)
        return self.peak_flops_per_s[used] / (_FP32_PASSES if precision == "fp32" != used else 1.0)

    def runs_as(self, precision: str) -> str:
        """Return the precision in which matmuls run that are asked for in this one: the same where the chip has it."""
        for other in (precision, *_FALLBACK.get(precision, ())):
            if other in self.peak_flops_per_s:
                return other
        raise KeyError(f"{self.name} has no {precision!r} matmul support")

    def wraps(self, topology: Sequence[int]) -> tuple[bool, ...]:
        """Per dimension of a slice: is it closed to a ring?  A dimension of one chip needs no link, hence False.

        Source: scaling book 2.2: v5e and v6e close axes of 16; v4, v5p (and Ironwood) close whole cubes of 4x4x4.
        """
        cubes = bool(self.wrap_cube) and all(size % self.wrap_cube == 0 for size in topology)
        return tuple(size > 1 and (cubes or size == self.wrap_at) for size in topology)


_WITHOUT_SOURCE = ("title", "kind", "device_types", "families")


def parse_chips(data: Mapping[str, Any]) -> dict[str, Chip]:
    """Return the chips of a parsed chips.toml.  Raises DataError on a number without source, or an unknown key."""
    rows: dict[str, dict[str, Any]] = {}
    for name, row in data.items():
        if name == "sources":
            continue
        numbers = {key: value for key, value in row.items() if key not in (*_WITHOUT_SOURCE, "peak")}
        peaks = {f"peak.{precision}": value for precision, value in row.get("peak", {}).items()}
        sources: dict[str, str] = {}
        for key, pair in {**numbers, **peaks}.items():
            if not isinstance(pair, list) or len(pair) != 2 or pair[1] not in data["sources"]:
                raise DataError(f"{name}.{key}: must be [number, source], the source one of [sources]")
            sources[key] = data["sources"][pair[1]]
        rows[name] = {key: row[key] for key in _WITHOUT_SOURCE if key in row} | {
            "name": name,
            "peak_flops_per_s": {key.removeprefix("peak."): number for key, (number, _) in peaks.items()},
            "sources": sources,
            **{key: number for key, (number, _) in numbers.items()},
        }
        rows[name].setdefault("chips_per_vm", rows[name].get("chips_per_host"))
    return read_rows(Chip, rows)


@cache
def load_chips() -> Mapping[str, Chip]:
    """All chips by key, in the order of the file."""
    return MappingProxyType(parse_chips(shipped("chips.toml")))


def get_chip(name: str) -> Chip:
    """The chip with this key, case-insensitive.  Raises KeyError with the nearest keys in its message."""
    chips = load_chips()
    key = name.strip().lower()
    if key in chips:
        return chips[key]
    near = difflib.get_close_matches(key, list(chips), n=1)
    hint = f"did you mean {near[0]}?" if near else "known chips: " + " ".join(chips)
    raise KeyError(f"{name!r} is not a known chip; {hint}")


def chip_from_device_type(device_type: str) -> str | None:
    """Key of the chip that XProf calls `device_type` (`TPU v6 lite`, `NVIDIA H100 80GB HBM3`); None where unclear.

    XProf names a GPU's architecture only (`Nvidia GPU (Hopper)`) when it has no more: several parts share one, so that
    stays None.
    """
    text = " ".join(device_type.lower().replace("_", " ").split())
    names = [(known.lower(), chip.name) for chip in load_chips().values() for known in chip.device_types]
    for known, name in names:
        if text == known:
            return name
    # `lite` names another part: a TPU v4 lite is no TPU v4.
    lite = "lite" in text
    contained = [(len(k), name) for k, name in names if _contains_words(text, k) and ("lite" in k) == lite]
    return max(contained)[1] if contained else None


#: Relative to the capacity as sold, a driver reports between these; to the peak, clocks differ by so much.
_MEMORY_REPORTED = (0.95, 1.01)
_CLOCKS = 0.12
_BANDWIDTH = 0.08


def chips_of_device(
    device_type: str,
    *,
    memory_bytes: float | None = None,
    peak_flops_per_s: float | None = None,
    hbm_bytes_per_s: float | None = None,
) -> tuple[str, ...]:
    """Keys of the chips that a profile's device may be, by its name and, where parts share one, by what it states.

    device_type: XProf's or PyTorch's name (`AMD GPU - gfx950`, `NVIDIA H100 80GB HBM3`).  memory_bytes: of the device
    as its driver reports it; peaks in FLOP/s and bytes/s, of 16-bit matmuls and HBM.  The nearest peak decides where
    the next one is clearly further away.  Empty where no chip of ours fits; several where they cannot be distinguished.
    """
    if (named := chip_from_device_type(device_type)) is not None:
        return (named,)
    text = " ".join(device_type.lower().replace("_", " ").split())
    if "pcie" in text or " nvl" in text:  # other boards than the ones in chips.toml
        return ()
    chips = [c for c in load_chips().values() if any(_contains_words(text, name.lower()) for name in c.families)]
    if memory_bytes:
        low, high = _MEMORY_REPORTED
        chips = [chip for chip in chips if low <= memory_bytes / chip.hbm_bytes <= high]
    if peak_flops_per_s:
        chips = _nearest(chips, {chip.name: (peak_flops_per_s / chip.peak("fp16"),) for chip in chips}, _CLOCKS)
    if hbm_bytes_per_s:
        # GPUs are listed by the memory's clock, at which it transfers twice.
        once_or_twice = {
            chip.name: (hbm_bytes_per_s / chip.hbm_bytes_per_s, 2.0 * hbm_bytes_per_s / chip.hbm_bytes_per_s)
            for chip in chips
        }
        chips = _nearest(chips, once_or_twice, _BANDWIDTH) or chips
    return tuple(chip.name for chip in chips)


def chip_of_device(device_type: str, **stated: float | None) -> str | None:
    """The only one of `chips_of_device`; None where there is none or several.  Same arguments."""
    chips = chips_of_device(device_type, **stated)
    return chips[0] if len(chips) == 1 else None


def _nearest(chips: Sequence[Chip], ratios: Mapping[str, tuple[float, ...]], within: float) -> list[Chip]:
    """The chips whose ratio to what was stated is nearest to one, with those that are nearly as near."""
    away = {chip.name: min(abs(log(ratio)) for ratio in ratios[chip.name]) for chip in chips}
    best = min(away.values(), default=within)
    return [chip for chip in chips if away[chip.name] <= within and away[chip.name] <= best + 0.03]


def _contains_words(text: str, known: str) -> bool:
    at = text.find(known)
    if at < 0:
        return False
    before, after = text[:at], text[at + len(known) :]
    return not (before[-1:].isalnum() or after[:1].isalnum())
