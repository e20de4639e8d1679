"""Members of classic groups, their requests and the responses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from penstock.broker.groups.errors import GroupError
from penstock.core.errors import PenstockError


class GroupState(Enum):
    """The state of a group; the values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


NEXT_STATES = {
    GroupState.EMPTY: {GroupState.PREPARING},
    GroupState.PREPARING: {GroupState.EMPTY, GroupState.COMPLETING},
    GroupState.COMPLETING: {GroupState.PREPARING, GroupState.STABLE},
    GroupState.STABLE: {GroupState.PREPARING},
}


class MemberIdRequiredError(GroupError):
    """The member was given an id, with which it must join again."""

    code = "member_id_required"

    def __init__(self, member_id: str) -> None:
        super().__init__(f"join again with the member id {member_id!r}")
        self.member_id = member_id


class OfferedProtocol(NamedTuple):
    """A protocol (assignor) that a member supports, and its metadata for the leader. Both are opaque to the broker."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A request to join. The member id of a new member is empty."""

    member_id: str
    protocol_type: str
    protocols: tuple[OfferedProtocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    takes_id_first: bool = True  # whether a new member understands MEMBER_ID_REQUIRED
    skips_assignment: bool = True  # whether it understands the flag SkipAssignment in the response


class ListedMember(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResponse(NamedTuple):
    """The response to a join: the generation. Only the leader gets `members`, to assign partitions to them."""

    member_id: str
    generation: int
    protocol_type: str
    protocol_name: str
    leader_id: str
    members: tuple[ListedMember, ...] = ()
    skip_assignment: bool = False


class SyncResponse(NamedTuple):
    """The response to a sync: what the leader has assigned to a member."""

    protocol_type: str
    protocol_name: str
    assignment: bytes


class Reply(NamedTuple):
    """The response to a request."""

    ticket: int
    response: JoinResponse | SyncResponse | PenstockError


class Store(NamedTuple):
    """The group as it is now must be made durable; then `ClassicGroup.stored` is called with this serial and the outcome."""

    serial: int


Effect = Reply | Store


@dataclass(slots=True)
class Member:
    """A member. Its session ends at `expires_at`, except while a request of it waits for other members."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[OfferedProtocol, ...]
    assignment: bytes = b""
    expires_at: float = 0.0
    is_new: bool = False  # whether it has never been part of a generation
    join_ticket: int | None = None  # the request with which it waits for a generation
    sync_ticket: int | None = None  # the request with which it waits for its assignment

    @classmethod
    def of(cls, member_id: str, request: JoinRequest) -> Member:
        """A member that joins for the first time."""
        return cls(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            is_new=True,
        )

    @property
    def can_expire(self) -> bool:
        """Whether its session can expire. It cannot while a join or sync waits, unless the member is new."""
        return self.is_new or (self.join_ticket is None and self.sync_ticket is None)

    def metadata(self, protocol_name: str) -> bytes:
        """What it says under a protocol."""
        return next((offered.metadata for offered in self.protocols if offered.name == protocol_name), b"")

    def offers(self, protocol_name: str) -> bool:
        """Whether it knows a protocol."""
        return any(offered.name == protocol_name for offered in self.protocols)


def expiries(members: Iterable[Member]) -> list[float]:
    """Returns when the sessions of members end, of those that can expire. It is asked after every request of a group."""
    return [
        member.expires_at
        for member in members
        # As `can_expire`, without a call for each.
        if member.is_new or (member.join_ticket is None and member.sync_ticket is None)
    ]


class GroupRecord(NamedTuple):
    """What is kept of a group over a restart; `empty_since_ms` is 0 while it has members."""

    generation: int
    empty_since_ms: int
    protocol_type: str
    protocol_name: str
    leader_id: str
    members: tuple[Member, ...]
