"""All groups of a broker: their names are one namespace, and each is of one kind at a time.

A group without members is not bound to its kind: the next member that joins it, by either protocol, takes it over with its
committed offsets.
A name that only has positions is a group of no kind, of consumers that assign partitions to themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.broker.consumers import OBJECT_PREFIX, Consumers
from penstock.broker.errors import LimitReachedError
from penstock.broker.groups.consumer_metadata import CONSUMER_PROTOCOL
from penstock.broker.groups.errors import NonEmptyGroupError, StaleGenerationError, SubscribedTopicError, UnknownGroupError
from penstock.tablet import Command, KvTablet, Request

if TYPE_CHECKING:
    from penstock.broker.groups.consumer_coordinator import ConsumerCoordinator
    from penstock.broker.groups.coordinator import GroupCoordinator

CLASSIC, CONSUMER = "classic", "consumer"
EMPTY_STATE = "Empty"


RECOUNT_EVERY = 256


class GroupSummary(NamedTuple):
    """A group as it is listed; `protocol_type` is what its members are to each other, "consumer" for consumers."""

    name: str
    kind: str
    state: str
    protocol_type: str


class DescribedMember(NamedTuple):
    """A member of a classic group as it is shown; its metadata and assignment are there once the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """A classic group as it is shown."""

    name: str
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[DescribedMember, ...]


class GroupsOfOneKind(Protocol):
    """What is asked of the coordinator of one kind of groups. A name it does not know is never passed to it."""

    def names(self) -> Iterable[str]:
        """Its groups, with and without members."""
        ...

    def has(self, name: str) -> bool:
        """Whether it has this group."""
        ...

    def summary(self, name: str) -> GroupSummary:
        """A group as it is listed."""
        ...

    def empty_since_ms(self, name: str) -> int | None:
        """The wall clock time since which a group has no members; None while it has any."""
        ...

    def subscribes(self, name: str, topic: str) -> bool:
        """Whether a member of the group may read the topic."""
        ...

    def check_commit(self, name: str, member_id: str, generation: int, instance_id: str | None, *, in_transaction: bool) -> None:
        """Raise unless the group takes positions from this member now. -1 and an empty id are of no member."""
        ...

    def check_fetch(self, name: str, member_id: str, epoch: int) -> None:
        """Raise if this member may not ask for positions of the group, because it is none, or behind. -1 is of no member."""
        ...

    def forget(self, name: str) -> tuple[Command, ...]:
        """Forget a group without members. Returns the commands that delete its records from the tablet."""
        ...

    def release(self) -> None:
        """Answer all who wait for others of their group: the broker is about to stop."""
        ...


class Groups:
    """The groups of every kind, and those with positions alone. The coordinators of the kinds are attributes, for what only they
    can be asked; each is also added with `add_kind`."""

    classic: GroupCoordinator
    consumer: ConsumerCoordinator

    def __init__(self, tablet: KvTablet, consumers: Consumers, groups_max: int | None = None) -> None:
        self._groups_max = groups_max
        self._known = -1  # how many groups there are at most; -1: to be counted
        self._refusals = 0
        self._tablet = tablet
        self._consumers = consumers
        self._kinds: dict[str, GroupsOfOneKind] = {}

    def add_kind(self, kind: str, groups: GroupsOfOneKind) -> None:
        """From now on, groups of this kind are there too."""
        self._kinds[kind] = groups

    def kinds(self) -> list[GroupsOfOneKind]:
        """The coordinators of all kinds."""
        return list(self._kinds.values())

    def kind(self, name: str) -> str | None:
        """Which kind a group is of; None if it has at most positions."""
        return next((kind for kind, groups in self._kinds.items() if groups.has(name)), None)

    def empty_since_ms(self, name: str) -> int | None:
        """The wall clock time since which a group of some kind has no members; None while it has any, or is of no kind."""
        kind = self.kind(name)
        return None if kind is None else self._kinds[kind].empty_since_ms(name)

    def take(self, name: str, kind: str) -> tuple[Command, ...]:
        """A member joins by the protocol of one kind: if the group is of another it changes, which the commands make durable.
        NonEmptyGroupError if it has members of the other."""
        held = self.kind(name)
        if held is None:
            self._check_room(name)
        if held is None or held == kind:
            return ()
        other = self._kinds[held]
        if other.empty_since_ms(name) is None:
            raise NonEmptyGroupError(f"group {name!r} has members of kind {held!r}; they must leave before {kind!r} ones join")
        return other.forget(name)

    def listed(self) -> list[GroupSummary]:
        """Every group, by name."""
        summaries = {name: groups.summary(name) for groups in self._kinds.values() for name in groups.names()}
        for name in self._consumers.consumers():
            if name.startswith(OBJECT_PREFIX):
                continue
            summaries.setdefault(name, GroupSummary(name, CLASSIC, EMPTY_STATE, ""))
        return [summaries[name] for name in sorted(summaries)]

    def check_commit(
        self, name: str, member_id: str, generation: int, instance_id: str | None = None, *, in_transaction: bool = False
    ) -> None:
        """Raise unless the group takes positions from this member now. -1 and an empty id are of no member: that may commit while
        the group has none, and in a transaction always."""
        kind = self.kind(name)
        if kind is not None:
            self._kinds[kind].check_commit(name, member_id, generation, instance_id, in_transaction=in_transaction)
        elif generation >= 0:
            raise StaleGenerationError(f"group {name!r} has no members, so none in generation {generation}; join it again")
        else:
            self._check_room(name)

    def _check_room(self, name: str) -> None:
        """LimitReachedError if a group of this name would be new, and one too many."""
        if self._groups_max is None or self._consumers.has_positions(name):
            return
        # Groups that go are not counted off. When the limit seems to be reached, those that are there are counted again, but not
        # for each client that tries.
        if self._known < 0 or (self._known >= self._groups_max and self._refusals % RECOUNT_EVERY == 0):
            self._known = len(self.listed())
        if self._known >= self._groups_max:
            self._refusals += 1
            raise LimitReachedError(
                f"there are {self._known} groups of consumers, and {self._groups_max} may be; group {name!r} cannot be made: "
                "delete groups, or raise groups_max"
            )
        self._known += 1

    def check_fetch(self, name: str, member_id: str, epoch: int) -> None:
        """Raise if this member may not ask for positions of the group, because it is none, or behind. -1 is of no member."""
        kind = self.kind(name)
        if kind is not None and epoch >= 0:
            self._kinds[kind].check_fetch(name, member_id, epoch)

    def release(self) -> None:
        """Answer all requests that wait for other members of their group: the broker is about to stop."""
        for groups in self._kinds.values():
            groups.release()

    def subscribes(self, name: str, topic: str) -> bool:
        """Whether a member of the group may read the topic."""
        kind = self.kind(name)
        return kind is not None and self._kinds[kind].subscribes(name, topic)

    def describe_classic(self, name: str) -> GroupDescription:
        """A classic group as it is shown; one that has positions alone is shown as a classic one without members."""
        if self.kind(name) is None and self._consumers.has_positions(name):
            return GroupDescription(name, EMPTY_STATE, "", "", ())
        return self.classic.describe(name)

    def check_known(self, name: str) -> None:
        """UnknownGroupError unless there is such a group, if only by its positions."""
        if self.kind(name) is None and not self._consumers.has_positions(name):
            raise UnknownGroupError(f"there is no group {name!r}")

    def check_topic_unused(self, name: str, topic: str) -> None:
        """SubscribedTopicError if members of the group read a topic; NonEmptyGroupError if it cannot be known what they read."""
        kind = self.kind(name)
        if kind is None or self._kinds[kind].empty_since_ms(name) is not None:
            return
        if self._kinds[kind].summary(name).protocol_type != CONSUMER_PROTOCOL:
            raise NonEmptyGroupError(f"group {name!r} has members that are no consumers; stop them first")
        if self._kinds[kind].subscribes(name, topic):
            raise SubscribedTopicError(f"members of group {name!r} read topic {topic!r}; stop them first")

    async def delete(self, name: str) -> None:
        """Delete a group without members, and its positions."""
        self.check_known(name)
        kind = self.kind(name)
        commands: tuple[Command, ...] = self._consumers.forget_all_commands(name)
        if kind is not None:
            if self._kinds[kind].empty_since_ms(name) is None:
                raise NonEmptyGroupError(f"group {name!r} has members; stop them first")
            commands += self._kinds[kind].forget(name)
        if commands:
            await self._tablet.execute(Request(commands, makes_room=True))
        self._known = -1
