"""Text in the cells of a CSV file, which no spreadsheet is to run."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable

#: What spreadsheets take for the beginning of a formula, also behind apostrophes of our own or blanks.
_FORMULA = re.compile("'*[\\s\ufeff\u200b]*[=+\\-@\t\r\n＝＋－＠]")


def guarded(text: str) -> str:
    """Return text that no spreadsheet runs as a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def unguarded(text: str) -> str:
    """Return the text that `guarded` was given."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def csv_line(values: Iterable[object]) -> str:
    """Return one line of CSV, text guarded; None is an empty cell."""
    text = io.StringIO()
    csv.writer(text).writerow(guarded(value) if isinstance(value, str) else value for value in values)
    return text.getvalue()
