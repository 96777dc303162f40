"""Numbers that passages print are those that `perfmodel` computes: `computed` in the passage files."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest

from knowledge.passage_file import Computed, PassageError, ShippedPassage, read_all, read_file
from tests.knowledge.formulas import FORMULAS, compute

PASSAGES = [passage for file in read_all() for passage in file.passages]
ENTRIES = [(passage, entry) for passage in PASSAGES for entry in passage.computed]


def half_unit(printed: str) -> float:
    """Half a unit of the last digit that a printed number shows; zeros at the end of a whole number are none."""
    mantissa, _, exponent = printed.replace(",", "").lower().partition("e")
    scale = Decimal(10) ** int(exponent or 0)
    zeros = len(mantissa) - len(mantissa.rstrip("0"))
    digits = -len(mantissa.partition(".")[2]) if "." in mantissa else zeros
    return float(Decimal(10) ** digits * scale / 2)


def agrees(entry: Computed) -> bool:
    value = float(entry.printed.replace(",", ""))
    return abs(compute(entry) - value) <= half_unit(entry.printed) * (1 + 1e-9)


def words(passage: ShippedPassage) -> str:
    return " ".join((passage.title, passage.text, passage.formula, passage.applies_when, passage.counter_indications))


@pytest.mark.parametrize(("passage", "entry"), ENTRIES, ids=lambda part: getattr(part, "id", None) or str(part)[:60])
def test_a_printed_number_is_the_one_that_is_computed(passage: ShippedPassage, entry: Computed) -> None:
    assert agrees(entry), f"{passage.id}: {entry.formula}{entry.arguments} is {compute(entry):.6g}, not {entry.printed}"
    text = " ".join(words(passage).split())
    assert re.search(rf"(?<![\d.,]){re.escape(entry.printed)}(?![\d]|[.,]\d)", text), f"{entry.printed} is not printed"


def test_the_check_covers_what_engineers_rely_on() -> None:
    assert len(ENTRIES) >= 100
    assert len({passage.id for passage, _ in ENTRIES}) >= 30
    assert {entry.formula for _, entry in ENTRIES} == set(FORMULAS)


@pytest.mark.parametrize(
    ("printed", "half"), [("243", 0.5), ("11,500", 50), ("2.5", 0.05), ("70.6e9", 0.05e9), ("850", 5), ("6e3", 500)]
)
def test_half_a_unit_of_what_is_printed(printed: str, half: float) -> None:
    assert half_unit(printed) == pytest.approx(half)


def test_a_wrong_number_and_an_unknown_formula_are_seen() -> None:
    assert agrees(Computed("hbm_ridge", ("v5e",), "243"))
    assert not agrees(Computed("hbm_ridge", ("v5e",), "244"))
    with pytest.raises(KeyError, match="is no formula"):
        compute(Computed("hbm_rigde", ("v5e",), "243"))


def test_an_entry_that_is_no_formula_is_refused(tmp_path) -> None:
    path = tmp_path / "x.md"
    path.write_text(
        '---\nsource: "s"\nurl: "https://example.org"\nchapter: "1"\n---\n# T\n\n## P\n```yaml\nid: p\nsection: "1"\n'
        'tags: [a]\nhardware: [any]\nbottlenecks: [memory]\ncomputed: ["about 243"]\n```\n\nText.\n',
        "utf-8",
    )
    with pytest.raises(PassageError, match="formula\\(argument"):
        read_file(path)
