"""Who leads: the holder of the leader key. No I/O.

The key is created by a candidate that finds none, under the lease of its node, and never changed by its holder: its revision is
the holder's token. Each write of the leader compares it, so that a leader which was replaced changes nothing more, however late
it learns of it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import msgspec

from penstock.coordination.key_layout import LEADER
from penstock.coordination.port import NO_LEASE, Compare, Entry, Put
from penstock.core.errors import CorruptionError, PenstockError


class NotLeaderError(PenstockError):
    """This node does not lead, or no more; another decides."""

    code = "not_leader"
    retriable = True


class LeaderRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads."""

    node_id: int
    instance_id: str


class Step(enum.Enum):
    """What a candidate does next."""

    WAIT = "wait"  # another leads, or this node has no lease
    CAMPAIGN = "campaign"
    LEAD = "lead"


@dataclass(frozen=True, slots=True)
class Leader:
    """The holder of the leader key and the token of its writes."""

    record: LeaderRecord
    revision: int
    lease: int

    def compare(self) -> Compare:
        """The condition that each write of the leader carries."""
        return Compare(LEADER, self.revision)


def leader_of(entry: Entry | None) -> Leader | None:
    """The leader that a key names."""
    if entry is None:
        return None
    try:
        record = msgspec.json.decode(entry.value, type=LeaderRecord)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"the key {entry.key} does not name a leader: {error}") from error
    return Leader(record, entry.revision, entry.lease)


def next_step(leader: Leader | None, mine: LeaderRecord, lease: int) -> Step:
    """What to do, given the leader that is known and our lease. A key of ours under an earlier lease is replaced."""
    if lease == NO_LEASE:
        return Step.WAIT
    if leader is None:
        return Step.CAMPAIGN
    if leader.record != mine:
        return Step.WAIT
    return Step.LEAD if leader.lease == lease else Step.CAMPAIGN


def campaign(leader: Leader | None, mine: LeaderRecord, lease: int) -> tuple[Compare, Put]:
    """The transaction that makes us the leader unless the key has changed since it was seen. With a leader that lives this is a
    challenge: it is for the caller to know that the leader cannot be reached by a majority."""
    compare = Compare(LEADER, leader.revision if leader is not None else 0)
    return compare, Put(LEADER, msgspec.json.encode(mine), lease)
