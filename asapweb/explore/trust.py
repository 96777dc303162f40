"""The errors of held-out runs that `make fit` wrote down (docs/accuracy.md), read again where the file changed."""

from __future__ import annotations

from functools import lru_cache

from asapweb.explore.accuracy import ACCURACY_FILE, Accuracy, load_accuracy


def accuracy() -> Accuracy | None:
    """The numbers of the last fit; None where there are none."""
    try:
        stamp = ACCURACY_FILE.stat().st_mtime_ns
    except OSError:
        return None
    return _loaded(stamp)


@lru_cache(maxsize=1)
def _loaded(stamp: int) -> Accuracy:
    return load_accuracy()
