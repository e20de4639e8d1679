"""One thing that `penstock doctor` has looked at."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

EVERYWHERE: Final = ("0.0.0.0", "::")
"The wildcard addresses: a node with one of these listens on all interfaces."


class Status(StrEnum):
    """How it is: fine, worth a thought, or in the way of a node."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    """What was looked at, how it is, and what to do about it if anything."""

    name: str
    status: Status
    found: str
    advice: str = ""


def ok(name: str, found: str, advice: str = "") -> Finding:
    """It is fine."""
    return Finding(name, Status.OK, found, advice)


def warn(name: str, found: str, advice: str) -> Finding:
    """A node runs, but not as well as it could."""
    return Finding(name, Status.WARN, found, advice)


def fail(name: str, found: str, advice: str) -> Finding:
    """A node will not run, or not safely."""
    return Finding(name, Status.FAIL, found, advice)


def size(count: int) -> str:
    """A number of bytes for a person."""
    for unit, step in (("TiB", 40), ("GiB", 30), ("MiB", 20)):
        if count >= 1 << step:
            return f"{count / (1 << step):.1f} {unit}"
    return f"{count / 1024:.0f} KiB"
