"""Time and peak memory of reading the log of a failed run: 200 MB with the error at its end, and one line of 50 MB."""

from __future__ import annotations

import io
import resource
import time

from proposals.failures import read_failure

LINE = b"[rank3]: 2024-05-01 10:00:00 INFO step 1200 loss 2.31 time 1.22 s tokens/s 81231 \x1b[32mok\x1b[0m\n"
ERROR = b"[rank7]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


class Generated(io.RawIOBase):
    """So many bytes of the same text, and the error after them; nothing of it is held."""

    def __init__(self, text: bytes, size_bytes: int) -> None:
        self.text, self.left, self.end = text, size_bytes, ERROR

    def read(self, size: int = -1) -> bytes:
        if self.left > 0:
            self.left -= size
            return self.text * (size // len(self.text))
        end, self.end = self.end, b""
        return end


def main() -> None:
    for name, text, size in (("200 MB of lines", LINE, 200_000_000), ("one line of 50 MB", b"x", 50_000_000)):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        failure = read_failure(Generated(text, size))  # type: ignore[arg-type]
        taken = time.perf_counter() - start
        assert failure.cause == "out_of_memory"
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3
        print(f"{name}: {taken:.1f} s, {size / taken / 1e6:.0f} MB/s, peak memory grew by {grown:.0f} MB")


if __name__ == "__main__":
    main()
