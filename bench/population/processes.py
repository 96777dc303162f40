"""What the processes of an installation hold: resident memory, and their share of it where pages are shared."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from asapweb.launcher.orphans import PIECE_MARK, find_marked


@dataclass(frozen=True)
class Held:
    """resident_bytes: of the largest process of the piece; share_bytes: proportional, of all of them together."""

    processes: int
    resident_bytes: int
    share_bytes: int


def held(home: Path) -> dict[str, Held]:
    """By piece of the installation whose data folder this is, `all` last."""
    sizes_by_piece: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for pid in find_marked(home):
        try:
            environment = dict(
                part.partition(b"=")[::2] for part in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            )
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        except OSError:  # ended meanwhile
            continue
        sizes = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        piece = environment.get(PIECE_MARK.encode(), b"other").decode()
        sizes_by_piece[piece].append((sizes["Rss"], sizes["Pss"]))
    pieces = {
        piece: Held(len(rows), max(rss for rss, _ in rows), sum(pss for _, pss in rows))
        for piece, rows in sorted(sizes_by_piece.items())
    }
    every = list(pieces.values())
    return pieces | {
        "all": Held(
            sum(item.processes for item in every), max(item.resident_bytes for item in every),
            sum(item.share_bytes for item in every),
        )
    }  # fmt: skip
