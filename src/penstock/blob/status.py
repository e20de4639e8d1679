"""Results of commands: the seed's statuses, with a reason for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from penstock.blob.meta import HistoryItem


class Status(Enum):
    """The result of a command."""

    OK = "OK"
    ERROR = "ERROR"  # a wrong command, or too few disks answered; it may still have taken effect
    ALREADY = "ALREADY"  # the same command was executed before
    BLOCKED = "BLOCKED"  # a newer generation of the tablet is running: this one must stop
    RACE = "RACE"  # the group changed under the command: send it again
    NODATA = "NODATA"  # there is no such blob
    DEADLINE = "DEADLINE"  # time ran out; it may still have taken effect
    OUT_OF_SPACE = "OUT_OF_SPACE"  # nothing was written because the disks are full


class Reply(NamedTuple):
    """The answer to a command that returns no data. `reason` is for people and empty when all is well. A block is answered with
    the newest channel history of the tablet, if it has ever changed groups."""

    status: Status
    reason: str = ""
    history: HistoryItem | None = None


OK = Reply(Status.OK)

Submitted = Callable[[Reply | None], None]
"""Told how a write ended: None if all of it is durable, otherwise the reply that decides."""


def worst_reply(replies: Iterable[Reply]) -> Reply | None:
    """The reply that decides for several: BLOCKED before all, then any other that is not OK; None if all are."""
    troubles = [reply for reply in replies if reply.status is not Status.OK]
    return min(troubles, key=lambda reply: reply.status is not Status.BLOCKED, default=None)
