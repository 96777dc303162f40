"""Write knowledge/embedding/shipped.npz: vectors of the shipped passages and records."""

from __future__ import annotations

import os
from collections.abc import Iterator


def texts() -> list[str]:
    """Return what a first start gives vectors to."""
    return [*passages_and_questions(), *records()]


def passages_and_questions() -> Iterator[str]:
    from knowledge.models import Question
    from knowledge.passage_file import read_all

    for file in read_all():
        for given in file.passages:
            yield given.embedding_text
            yield from (Question(text=text).embedding_text() for text in given.questions)


def records() -> Iterator[str]:
    from history import seeds
    from history.services.store import to_row

    for record in seeds.records():
        yield to_row(record, None).embedding_text()


def main() -> None:
    from knowledge.embedding.minilm import compute
    from knowledge.embedding.shipped import FILE, write

    found = texts()
    write(found, compute(found))
    print(f"{FILE}: {len(found)} texts, {FILE.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "asapweb.settings")
    django.setup()
    main()
