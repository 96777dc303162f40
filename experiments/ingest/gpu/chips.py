"""Which chip a GPU is, from what the driver says of it: name and memory."""

from __future__ import annotations

import re

from perfmodel.chips import chip_from_device_type, load_chips

#: Capacities differ from the data sheet's by what the driver keeps.
_TOLERANCE = 0.06
#: Other parts of the same architecture, with other clocks, memory and links.
_OTHER_FORMS = re.compile(r"pcie|\bnvl\b|\bL\b", re.I)


def gpu_chip(name: str, memory_bytes: float | None) -> str | None:
    """Our key of the chip; None where the name fits none, or several that the capacity does not tell apart.

    A name that is not in the catalogue (`NVIDIA A100-PG509-200`) stands for the part of its family with that capacity;
    a nameless device, which ROCm reports in some containers, for the only AMD part with it.
    """
    named = chip_from_device_type(name)
    if named is not None:
        return named if _fits(named, memory_bytes) else None
    if not memory_bytes or _OTHER_FORMS.search(name):
        return None
    words = set(re.findall(r"[A-Z]+\d{2,4}[A-Z]*", name.upper()))
    chips = [chip for chip in load_chips().values() if chip.kind == "gpu" and _fits(chip.name, memory_bytes)]
    if words:
        family = [chip.name for chip in chips if chip.name.partition("-")[0].upper() in words]
    elif not name.strip() or "AMD" in name.upper():
        family = [chip.name for chip in chips if "AMD" in chip.title.upper() or chip.name.startswith("mi")]
    else:
        family = []
    return family[0] if len(family) == 1 else None


def _fits(chip: str, memory_bytes: float | None) -> bool:
    return memory_bytes is None or abs(memory_bytes / load_chips()[chip].hbm_bytes - 1.0) <= _TOLERANCE
