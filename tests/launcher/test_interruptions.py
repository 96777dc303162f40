from __future__ import annotations

import os
import signal

import pytest

from asapweb.launcher.interruptions import Interrupted, interruptible


class Interrupts:
    """Python drops what a signal's handler raises while a finaliser runs."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGHUP)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_inside_a_finaliser_is_not_lost() -> None:
    with interruptible() as interruptions:
        interruptions.heed()
        Interrupts()
        with pytest.raises(Interrupted):
            interruptions.heed()


def test_a_second_signal_is_heard_only_when_the_first_was_heeded() -> None:
    with interruptible() as interruptions:
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        interruptions.seen = False
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGTERM)
