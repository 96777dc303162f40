"""The one way ingestion fails: a sentence for the person who uploaded, with what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

COPY_AGAIN = "Copy it again from the host, or continue without this host."


class IngestError(Exception):
    """A profile that cannot be read.

    message: what is wrong and where, one sentence.  next_step: what to do, one sentence.  file: the upload's name as
    the user knows it, None where no single file is at fault.  kind: `empty`, `format`, `truncated`, `too_large`,
    `archive`, `duplicate_host`, `sessions`, `memory`, `time`, `disk`, `crash` or `converter`.  excludable: the
    session has other hosts, and `read_profile(…, exclude=(file,))` can continue without this one.  detail: the
    converter's own words, for the log only.
    """

    def __init__(
        self,
        message: str,
        next_step: str = "",
        file: str | None = None,
        *,
        kind: str = "format",
        excludable: bool = False,
        detail: str = "",
    ) -> None:
        self.message = _one_line(message)
        self.next_step = _one_line(next_step)
        self.file = file
        self.kind = kind
        self.excludable = excludable
        self.detail = detail
        super().__init__(self.line)

    @property
    def line(self) -> str:
        """Message and next step on one line of at most 300 characters, as the command line prints it."""
        text = f"{self.message} {self.next_step}".strip()
        return text if len(text) <= 300 else text[:299] + "…"

    def to_json(self) -> dict[str, Any]:
        keys = ("message", "next_step", "file", "kind", "excludable")
        return {**{key: getattr(self, key) for key in keys}, "detail": self.detail[-4000:]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> IngestError:
        return cls(
            str(data.get("message", "The converter failed.")),
            str(data.get("next_step", "")),
            data.get("file"),
            kind=str(data.get("kind", "converter")),
            excludable=bool(data.get("excludable", False)),
            detail=str(data.get("detail", "")),
        )


def refuse_twice(files: Iterable[tuple[str, str]], each: str) -> None:
    """Raise IngestError where two files are of the same `each` (host, rank).  files: (which it is, the file's name)."""
    seen: dict[str, str] = {}
    for which, file in files:
        if which in seen:
            raise IngestError(
                f"Two files are of {each} {which}: {seen[which]} and {file}.",
                f"Upload one file per {each}, all of one recording.",
                file,
                kind="duplicate_host",
                excludable=True,
            )
        seen[which] = file


def _one_line(text: str) -> str:
    """Text that holds names from an upload may hold anything: control characters and line breaks become spaces."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
