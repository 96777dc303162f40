"""Call one function from many threads at the same moment, each with a database connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django.db import connection


def in_threads(count: int, function: Callable[[int], Any]) -> list[Any]:
    """What `function(index)` returned in each of so many threads, or the exception that it raised."""
    start = threading.Barrier(count)
    results: list[Any] = [None] * count

    def call(index: int) -> None:
        start.wait()
        try:
            results[index] = function(index)
        except Exception as error:
            results[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=call, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
