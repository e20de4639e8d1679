"""Signals that end a command with processes of its own, which it stops first."""

from __future__ import annotations

import signal
from collections.abc import Sequence


def interrupt_once(numbers: Sequence[signal.Signals]) -> None:
    """Raises KeyboardInterrupt at the first of these signals. Those after it are ignored: an interrupted clean-up would leave
    processes behind."""

    def interrupt(number: int, frame: object) -> None:
        ignore(numbers)
        raise KeyboardInterrupt

    for number in numbers:
        signal.signal(number, interrupt)


def ignore(numbers: Sequence[signal.Signals]) -> None:
    """Ignores these signals from now on."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
