"""How a converting process says how far it is."""

from __future__ import annotations

from collections.abc import Callable

#: Called with the stage, how much of it is done (0–1, None where that is not known), and a sentence.
Report = Callable[[str, "float | None", str], None]
