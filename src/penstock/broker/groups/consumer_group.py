"""A group whose coordinator assigns partitions (KIP-848), as a pure state machine: heartbeats in, answers and records out.

There are three epochs. The group's grows with every change that needs another assignment: a member joins or leaves, changes its
subscription, or a topic changes. The assignment's follows when the target of every member is computed. A member's follows when it
has given up what the target takes from it. A partition is assigned to its new owner once the old one has given it up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from uuid import UUID

from penstock.broker.consumers import TopicPartition
from penstock.broker.groups.assignors import ASSIGNORS, Candidate
from penstock.broker.groups.consumer_errors import (
    FencedMemberError,
    StaleMemberError,
    UnreleasedInstanceError,
    UnsupportedAssignorError,
)
from penstock.broker.groups.consumer_records import (
    GROUP,
    MEMBER,
    NO_QUEUES,
    TARGET,
    GroupRecord,
    Member,
    MemberState,
    key_of,
    pack_target,
)
from penstock.broker.groups.errors import FencedInstanceError, GroupError, GroupFullError, UnknownMemberError
from penstock.broker.groups.reconciliation import reconcile
from penstock.broker.groups.subscriptions import Subscriptions, Topics
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.tablet import Command, DeleteRange, Write

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
PAUSE_EPOCH: Final = -2  # a static member goes and will be back


@dataclass(frozen=True, slots=True)
class ConsumerGroupOptions:
    """How groups of this kind behave."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    members_max: int = 10_000
    assignors: tuple[str, ...] = ("uniform", "range")  # the first is for groups whose members name none


class Heartbeat(NamedTuple):
    """The heartbeat of a member. None is "as before"; an empty pattern is none."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    names: frozenset[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: frozenset[TopicPartition] | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """Whether the member says everything about itself, as it does when it is not sure what the group knows."""
        subscribed = self.names is not None or self.pattern is not None
        return self.rebalance_timeout_ms is not None and subscribed and self.owned is not None


class HeartbeatResponse(NamedTuple):
    """The response to a heartbeat: the member's epoch, when to send the next, and its partitions (None: as before)."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assigned: frozenset[TopicPartition] | None = None


Undo = dict[tuple[bytes, str], GroupRecord | Member | frozenset[TopicPartition] | None]


class Changes(NamedTuple):
    """What makes changes of a group durable, and what the records were before."""

    commands: tuple[Command, ...]
    undo: Undo


class ConsumerGroup:
    """One group. Changes are gathered until `take_changes`, which makes them final, or `roll_back`, which undoes them."""

    def __init__(self, name: str, options: ConsumerGroupOptions, clock: Clock) -> None:
        self.name = name
        self.options = options
        self._clock = clock
        self.record = GroupRecord(empty_since_ms=int(clock.wall() * 1000))
        self.members: dict[str, Member] = {}
        self.targets: dict[str, frozenset[TopicPartition]] = {}
        self._owners: dict[TopicPartition, str] = {}
        self._instances: dict[str, str] = {}
        self._sessions: dict[str, float] = {}
        self._revocations: dict[str, float] = {}  # deadlines of members that must give up partitions
        self._subscriptions = Subscriptions()
        self._topics_version: int | None = None  # of the topics that the record was last compared with
        self._resubscribed = False  # whether a member has come or subscribes otherwise since the last assignment
        self._undo: Undo = {}

    @classmethod
    def restore(
        cls,
        name: str,
        options: ConsumerGroupOptions,
        clock: Clock,
        *,
        record: GroupRecord,
        members: Iterable[Member],
        targets: Mapping[str, frozenset[TopicPartition]],
    ) -> ConsumerGroup:
        """Returns a group as it was stored. The session timeouts of its members start now."""
        group = cls(name, options, clock)
        group._set_record(record)
        for member in members:
            group._set_member(member.id, member)
            group._keep_time(member)
        for member_id, target in targets.items():
            group._set_target(member_id, target)
        group._undo.clear()
        return group

    @property
    def state(self) -> str:
        """The state by the name Kafka gives it."""
        if not self.members:
            return "Empty"
        if self.record.epoch > self.record.assignment_epoch:
            return "Assigning"
        epoch = self.record.assignment_epoch
        settled = all(member.state is MemberState.STABLE and member.epoch == epoch for member in self.members.values())
        return "Stable" if settled else "Reconciling"

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for."""
        order = self.options.assignors
        votes = Counter(member.assignor for member in self.members.values() if member.assignor in order)
        return max(order, key=lambda name: votes[name])  # the earlier one of those that are as popular

    def heartbeat(self, beat: Heartbeat, topics: Topics) -> HeartbeatResponse:
        """Process one heartbeat. Raises a GroupError or FencedInstanceError, and then nothing has changed."""
        (response,) = self.heartbeats([beat], topics)
        if isinstance(response, PenstockError):
            raise response
        return response

    def heartbeats(self, beats: Sequence[Heartbeat], topics: Topics) -> list[HeartbeatResponse | PenstockError]:
        """Process heartbeats that arrive together. Returns a response for each; partitions are assigned at most once for all."""
        updates = [self._update(beat, topics) for beat in beats]
        if any(isinstance(update, Member) for update in updates):
            self._follow(topics)
            assert self.record.assignment_epoch == self.record.epoch, "members are answered by an outdated assignment"
        return [
            self._reconciled(beat, update) if isinstance(update, Member) else update
            for beat, update in zip(beats, updates, strict=True)
        ]

    def expire(self) -> None:
        """Remove members whose session has expired, or that have not given up partitions in time."""
        now = self._clock.monotonic()
        late = [member for deadlines in (self._sessions, self._revocations) for member, at in deadlines.items() if at <= now]
        for member_id in dict.fromkeys(late):
            self._remove(member_id)

    def next_expiry(self) -> float | None:
        """The time of the monotonic clock at which a member will be late."""
        return min((*self._sessions.values(), *self._revocations.values()), default=None)

    def check_commit(self, member_id: str, epoch: int) -> None:
        """Raise unless the group takes positions from this member in this epoch. Without members it takes them from anyone."""
        if epoch >= 0 or member_id or self.members:
            self.check_fetch(member_id, epoch)

    def check_fetch(self, member_id: str, epoch: int) -> None:
        """Raise unless this member is in this epoch."""
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberError(f"group {self.name!r} has no member {member_id!r}; join it again")
        if epoch != member.epoch:
            raise StaleMemberError(f"member {member_id!r} is in epoch {member.epoch}, not {epoch}; ask again after a heartbeat")

    def subscribed(self, topics: Topics) -> dict[UUID, int]:
        """The topics that any member reads, with how many partitions they have."""
        wanted: set[UUID] = set()
        for kind in {(member.names, member.pattern): member for member in self.members.values()}.values():
            wanted |= self._subscriptions.topics_of(kind, topics)
        return {shape.id: shape.partitions for shape in topics.by_name.values() if shape.id in wanted}

    def take_changes(self) -> Changes:
        """What makes all changes since the last call durable."""
        commands: list[Command] = []
        for (kind, member_id), before in self._undo.items():
            packed = self._packed(kind, member_id)
            key = key_of(self.name, kind, member_id)
            if packed is not None:
                commands.append(Write(key, b"", head=packed))
            elif before is not None:
                commands.append(DeleteRange(key, key + b"\0"))
        undo, self._undo = self._undo, {}
        return Changes(tuple(commands), undo)

    def roll_back(self, changes: Changes) -> None:
        """Undo changes that could not be made durable. There must be no later ones."""
        # What a member loses must be free before another has it back.
        for (kind, member_id), before in changes.undo.items():
            if kind == MEMBER:
                self._set_member(member_id, None)
            elif kind == TARGET:
                assert before is None or isinstance(before, frozenset)
                self._set_target(member_id, before)
        for before in changes.undo.values():
            if isinstance(before, Member):
                self._set_member(before.id, before)
                self._keep_time(before)
            elif isinstance(before, GroupRecord):
                self._set_record(before)
        self._topics_version = None
        self._resubscribed = False
        self._undo.clear()

    def _packed(self, kind: bytes, member_id: str) -> bytes | None:
        """The stored form of a record as it is now; None if it is gone."""
        if kind == GROUP:
            return self.record.pack()
        if kind == MEMBER:
            member = self.members.get(member_id)
            return None if member is None else member.pack()
        target = self.targets.get(member_id)
        return None if target is None else pack_target(target)

    def _check(self, beat: Heartbeat, topics: Topics) -> None:
        if beat.assignor is not None and (beat.assignor not in self.options.assignors or beat.assignor not in ASSIGNORS):
            raise UnsupportedAssignorError(
                f"there is no assignor {beat.assignor!r}; use one of {', '.join(self.options.assignors)}"
            )
        if beat.pattern is not None:
            self._subscriptions.check(beat.pattern, topics)

    def _update(self, beat: Heartbeat, topics: Topics) -> Member | HeartbeatResponse | PenstockError:
        """Update a member from its heartbeat. Returns the member as it was before, or the response if it is known already."""
        try:
            if beat.epoch in (LEAVE_EPOCH, PAUSE_EPOCH):
                return self._leave(beat)
            self._check(beat, topics)
            before = self._joining(beat) if beat.epoch == JOIN_EPOCH else self._known(beat)
        except PenstockError as error:
            self._forget_patterns()
            return error
        member = _updated(before, beat)
        if before.id not in self.members or (before.names, before.pattern) != (member.names, member.pattern):
            self._resubscribed = True
        self._set_member(member.id, member)
        return before

    def _reconciled(self, beat: Heartbeat, before: Member) -> HeartbeatResponse | PenstockError:
        """Move a member towards its target. Returns the response to its heartbeat."""
        member = self.members.get(before.id)
        if member is None:
            return UnknownMemberError(f"member {before.id!r} has left group {self.name!r} at the same time")
        epoch, target = self.record.assignment_epoch, self.targets.get(member.id, NO_QUEUES)
        member = reconcile(member, target, epoch, beat.owned, lambda queue: self._owners.get(queue, before.id) == before.id)
        assert member.epoch <= epoch, f"member {member.id!r} is in epoch {member.epoch}, ahead of the assignment's {epoch}"
        assert member.assigned <= target or member.epoch < epoch, f"member {member.id!r} has partitions beyond its target"
        self._set_member(member.id, member)
        if member.revoking != before.revoking:
            self._revocations.pop(member.id, None)
        self._keep_time(member)
        repeats = beat.epoch != before.epoch  # the last response may not have arrived
        differs = beat.owned is not None and beat.owned != member.assigned
        is_news = member.assigned != before.assigned or beat.epoch == JOIN_EPOCH or beat.is_full or repeats or differs
        return HeartbeatResponse(member.id, member.epoch, self._interval_ms(member), member.assigned if is_news else None)

    def _joining(self, beat: Heartbeat) -> Member:
        """The member that joins: a new one, one that starts over, or a static one that takes the place of its former self."""
        holder = self._instances.get(beat.instance_id) if beat.instance_id is not None else None
        if holder is not None and holder != beat.member_id:
            former = self.members[holder]
            if former.epoch != PAUSE_EPOCH:
                raise UnreleasedInstanceError(f"member {holder!r} uses instance id {beat.instance_id!r} and has not left")
            target = self.targets.get(holder)
            self._drop(holder)
            back = replace(former, id=beat.member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
            self._set_member(back.id, back)
            self._set_target(back.id, target)
            return back
        known = self.members.get(beat.member_id)
        if known is not None:
            return replace(known, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH) if known.epoch == PAUSE_EPOCH else known
        if len(self.members) >= self.options.members_max:
            raise GroupFullError(f"group {self.name!r} is full: it has {len(self.members)} members")
        return Member(beat.member_id)

    def _known(self, beat: Heartbeat) -> Member:
        """Returns the member of a heartbeat. FencedMemberError unless it is in its current epoch, or missed the last response."""
        member = self._member(beat)
        if beat.epoch == member.epoch:
            return member
        has_only_its_own = beat.owned is not None and beat.owned <= member.assigned | member.revoking
        missed_the_answer = beat.epoch == member.previous_epoch and has_only_its_own
        if beat.epoch > member.epoch or not missed_the_answer:
            raise FencedMemberError(
                f"member {member.id!r} of group {self.name!r} is in epoch {member.epoch}, not {beat.epoch}; "
                "it must give up its partitions and join again"
            )
        return member

    def _member(self, beat: Heartbeat) -> Member:
        if beat.instance_id is not None:
            holder = self._instances.get(beat.instance_id)
            if holder is None:
                raise UnknownMemberError(
                    f"group {self.name!r} has no member with instance id {beat.instance_id!r}; join it again"
                )
            if holder != beat.member_id:
                raise FencedInstanceError(f"instance id {beat.instance_id!r} is now used by member {holder!r}")
        member = self.members.get(beat.member_id)
        if member is None:
            raise UnknownMemberError(f"group {self.name!r} has no member {beat.member_id!r}; join it again")
        return member

    def _leave(self, beat: Heartbeat) -> HeartbeatResponse:
        member = self._member(beat)
        if beat.epoch == LEAVE_EPOCH:
            self._remove(member.id)
        elif member.instance_id is None:
            raise GroupError("a member without an instance id leaves with epoch -1, not -2")
        else:
            # Its partitions wait for it as long as its session lasts; what it was giving up, it has given up.
            gone = replace(member, epoch=PAUSE_EPOCH, state=MemberState.STABLE, revoking=NO_QUEUES)
            self._set_member(gone.id, gone)
            self._keep_time(gone)
        return HeartbeatResponse(member.id, beat.epoch)

    def _interval_ms(self, member: Member) -> int:
        """Returns when to send the next heartbeat: sooner if the member waits for partitions that others give up."""
        waits = member.state is MemberState.UNRELEASED
        return max(self.options.heartbeat_interval_ms // (10 if waits else 1), 1)

    def _remove(self, member_id: str) -> None:
        self._drop(member_id)
        self._forget_patterns()
        emptied_ms = 0 if self.members else int(self._clock.wall() * 1000)
        self._set_record(replace(self.record, epoch=self.record.epoch + 1, empty_since_ms=emptied_ms))

    def _forget_patterns(self) -> None:
        """Forget the cached matches of patterns that no member uses."""
        self._subscriptions.retain({member.pattern for member in self.members.values()})

    def _drop(self, member_id: str) -> None:
        self._set_member(member_id, None)
        self._set_target(member_id, None)

    def _follow(self, topics: Topics) -> None:
        """Compute a new assignment if members, subscriptions, topics or the assignor have changed."""
        record = self.record
        resubscribed, self._resubscribed = self._resubscribed, False
        if resubscribed:
            self._forget_patterns()
        if resubscribed or self._topics_version != topics.version:
            shapes = self.subscribed(topics)
            if resubscribed or shapes != record.topics:
                record = replace(record, epoch=record.epoch + 1, topics=shapes, empty_since_ms=0)
            self._topics_version = topics.version
        assignor = self.assignor
        if assignor != record.assignor and record.epoch == record.assignment_epoch:
            record = replace(record, epoch=record.epoch + 1)
        if record.epoch > record.assignment_epoch:
            record = replace(record, topics=self.subscribed(topics), assignor=assignor, assignment_epoch=record.epoch)
            self._assign(record, topics)
        self._set_record(record)

    def _assign(self, record: GroupRecord, topics: Topics) -> None:
        candidates = {
            member.id: Candidate(
                self._subscriptions.topics_of(member, topics), self.targets.get(member.id, NO_QUEUES), member.instance_id
            )
            for member in self.members.values()
        }
        target = ASSIGNORS[record.assignor](candidates, record.topics)
        assert target.keys() == self.members.keys(), "the assignor left out a member, or made one up"
        assert sum(map(len, target.values())) <= sum(record.topics.values()), "the assignor gave a partition to two members"
        for member_id, queues in target.items():
            self._set_target(member_id, queues)

    def _keep_time(self, member: Member) -> None:
        now = self._clock.monotonic()
        self._sessions[member.id] = now + self.options.session_timeout_ms / 1000
        if member.state is not MemberState.UNREVOKED:
            self._revocations.pop(member.id, None)
        else:
            self._revocations.setdefault(member.id, now + member.rebalance_timeout_ms / 1000)

    def _set_record(self, record: GroupRecord) -> None:
        assert record.assignment_epoch <= record.epoch, f"assignment epoch {record.assignment_epoch} is ahead of {record.epoch}"
        if record != self.record:
            self._undo.setdefault((GROUP, ""), self.record)
            self.record = record

    def _set_target(self, member_id: str, target: frozenset[TopicPartition] | None) -> None:
        before = self.targets.get(member_id)
        if target != before:
            self._undo.setdefault((TARGET, member_id), before)
            if target is None:
                del self.targets[member_id]
            else:
                self.targets[member_id] = target

    def _set_member(self, member_id: str, member: Member | None) -> None:
        before = self.members.get(member_id)
        if member == before:
            return
        self._undo.setdefault((MEMBER, member_id), before)
        if before is not None:
            for queue in (*before.assigned, *before.revoking):
                del self._owners[queue]
            if before.instance_id is not None:
                self._instances.pop(before.instance_id, None)
        if member is None:
            del self.members[member_id]
            self._sessions.pop(member_id, None)
            self._revocations.pop(member_id, None)
            return
        assert (member.state is MemberState.UNREVOKED) == bool(member.revoking), f"{member_id} is {member.state.name}"
        self.members[member_id] = member
        for queue in (*member.assigned, *member.revoking):
            assert queue not in self._owners, f"{queue} is given to {member_id} while {self._owners[queue]} has it"
            self._owners[queue] = member_id
        if member.instance_id is not None:
            self._instances[member.instance_id] = member_id


def _updated(member: Member, beat: Heartbeat) -> Member:
    """The member with what it says of itself; None is as before."""
    said = {
        "instance_id": beat.instance_id,
        "rack_id": beat.rack_id,
        "rebalance_timeout_ms": beat.rebalance_timeout_ms,
        "names": beat.names,
        "pattern": beat.pattern,
        "assignor": beat.assignor,
        "client_id": beat.client_id,
        "client_host": beat.client_host,
    }
    changed = {name: value for name, value in said.items() if value is not None and value != getattr(member, name)}
    return replace(member, **changed) if changed else member  # type: ignore[arg-type] # each by the name of its field


def queues_by_topic(queues: Iterable[TopicPartition]) -> Iterator[tuple[UUID, list[int]]]:
    """Partitions as messages carry them: topics in order, each with its numbers in order."""
    topics: dict[UUID, list[int]] = {}
    for queue in sorted(queues):
        topics.setdefault(queue.topic_id, []).append(queue.partition)
    return iter(topics.items())
