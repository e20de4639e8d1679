"""Members of classic groups, what they ask and what they are answered."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from penstock.broker.groups.errors import GroupError
from penstock.core.errors import PenstockError


class GroupState(Enum):
    """Where a group stands; the values are Kafka's names."""

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
    """A way to divide partitions, and what a member says to whoever divides them so. The broker looks into neither."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """What a member says when it joins; an empty member id is that of a new one."""

    member_id: str
    protocol_type: str
    protocols: tuple[OfferedProtocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    takes_id_first: bool = True  # whether a new member can be told its id and asked to join again
    skips_assignment: bool = True  # whether it understands that a leader need not assign anything


class ListedMember(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResponse(NamedTuple):
    """A member is part of a generation. `members` are told to the leader alone, who divides the partitions among them."""

    member_id: str
    generation: int
    protocol_type: str
    protocol_name: str
    leader_id: str
    members: tuple[ListedMember, ...] = ()
    skip_assignment: bool = False


class SyncResponse(NamedTuple):
    """What the leader has assigned to a member."""

    protocol_type: str
    protocol_name: str
    assignment: bytes


class Reply(NamedTuple):
    """The answer to a request that was waiting."""

    ticket: int
    response: JoinResponse | SyncResponse | PenstockError


class Store(NamedTuple):
    """The group as it is now must be made durable; `ClassicGroup.stored` is told the outcome with this number."""

    serial: int


Effect = Reply | Store


@dataclass(slots=True)
class Member:
    """A member. It is forgotten at `expires_at` unless it is heard of before; while it waits for others it cannot be heard of."""

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
        """A member that joins."""
        return cls(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
        )

    @property
    def can_expire(self) -> bool:
        """Whether it is forgotten if it is not heard of. One that waits is heard of again when it has its answer."""
        return self.is_new or (self.join_ticket is None and self.sync_ticket is None)

    def metadata(self, protocol_name: str) -> bytes:
        """What it says under a protocol."""
        return next((offered.metadata for offered in self.protocols if offered.name == protocol_name), b"")

    def offers(self, protocol_name: str) -> bool:
        """Whether it knows a protocol."""
        return any(offered.name == protocol_name for offered in self.protocols)


class GroupRecord(NamedTuple):
    """What is kept of a group over a restart; `empty_since_ms` is 0 while it has members."""

    generation: int
    empty_since_ms: int
    protocol_type: str
    protocol_name: str
    leader_id: str
    members: tuple[Member, ...]
