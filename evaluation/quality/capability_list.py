"""The list of capabilities in docs/reasoner.md: `python -m evaluation.quality.capability_list`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from proposals.agents.capabilities import AREAS, registry

PAGE = Path(__file__).parents[2] / "docs" / "reasoner.md"
_LIST = re.compile(r"(?<=<!-- capabilities -->\n).*?(?=<!-- end -->)", re.DOTALL)


def listed() -> Iterator[str]:
    """A table row per area."""
    yield "| area | capabilities |"
    yield "|---|---|"
    for area, name in AREAS.items():
        titles = [f"{item.title} (`{key}`)" for key, item in registry().items() if item.area == area]
        yield f"| {name} | {'; '.join(titles)} |"


def main() -> None:
    text = PAGE.read_text("utf-8")
    PAGE.write_text(_LIST.sub(lambda _: "\n".join(listed()) + "\n", text), "utf-8")


if __name__ == "__main__":
    main()
