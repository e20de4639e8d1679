"""The coordinator of classic groups: their state machines on the event loop, with timers, waiting requests and the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from itertools import count
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from penstock.broker.groups.classic import ClassicGroup
from penstock.broker.groups.consumer_metadata import CONSUMER_PROTOCOL, subscribed_topics
from penstock.broker.groups.errors import (
    CoordinatorUnavailableError,
    InconsistentProtocolError,
    InvalidGroupNameError,
    NonEmptyGroupError,
    NotCoordinatorError,
    SessionTimeoutError,
    UnknownGroupError,
    UnknownMemberError,
)
from penstock.broker.groups.members import Effect, GroupState, JoinRequest, JoinResponse, Reply, Store, SyncResponse
from penstock.broker.groups.options import GroupOptions
from penstock.broker.groups.registry import CLASSIC, DescribedMember, GroupDescription, Groups, GroupSummary
from penstock.broker.groups.store import GroupStore, pack_group
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.tablet import Command, KvTablet, Request

log = logging.getLogger(__name__)

NAME_SIZE_MAX = 1000
STOPPED = "this coordinator has stopped; find the coordinator of the group again"
A = TypeVar("A", JoinResponse, SyncResponse)


class _GroupSlot:
    """A group and its timer."""

    __slots__ = ("due", "empty_since_ms", "group", "is_stored", "timer")

    def __init__(self, group: ClassicGroup, empty_since_ms: int, *, is_stored: bool) -> None:
        self.group = group
        self.empty_since_ms = empty_since_ms  # meaningful while it has no members
        self.is_stored = is_stored
        self.timer: asyncio.TimerHandle | None = None
        self.due = 0.0  # when the timer fires


class GroupCoordinator:
    """All classic groups. `load` must be called first."""

    def __init__(self, groups: Groups, tablet: KvTablet, options: GroupOptions, *, clock: Clock, random: Random) -> None:
        self._groups = groups
        self._tablet = tablet
        self._store = GroupStore(tablet)
        self._options = options
        self._clock = clock
        self._random = random
        self._slots: dict[str, _GroupSlot] = {}
        self._tickets = count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    @classmethod
    async def start(
        cls, groups: Groups, tablet: KvTablet, options: GroupOptions, *, clock: Clock, random: Random
    ) -> GroupCoordinator:
        """Make one that has loaded the groups that the tablet holds."""
        coordinator = cls(groups, tablet, options, clock=clock, random=random)
        await coordinator.load()
        return coordinator

    async def load(self) -> None:
        """Load the groups that are stored. The sessions of their members start now."""
        options, now = self._options, self._clock.monotonic()
        for name, record in (await self._store.load()).items():
            group = ClassicGroup.restored(
                name, record, now, initial_delay_s=options.initial_rebalance_delay_ms / 1000, members_max=options.members_max
            )
            slot = self._slots[name] = _GroupSlot(group, record.empty_since_ms, is_stored=True)
            self._schedule(slot)
        self._groups.add_kind(CLASSIC, self)

    async def join(self, name: str, request: JoinRequest) -> JoinResponse:
        """Join a group, and wait for the generation that this begins."""
        # Clients depend on which error comes first: the checks are in Kafka's order.
        if self._is_stopped:
            raise NotCoordinatorError(STOPPED)
        check_group_name(name)
        options = self._options
        if not options.session_timeout_ms_min <= request.session_timeout_ms <= options.session_timeout_ms_max:
            raise SessionTimeoutError(
                f"the session timeout is {request.session_timeout_ms} ms; it can be {options.session_timeout_ms_min} to "
                f"{options.session_timeout_ms_max} (group_session_timeout_min_ms, group_session_timeout_max_ms)"
            )
        slot = self._known(name) if request.member_id else await self._known_or_new(name)
        new_id = f"{request.instance_id or request.client_id}-{UUID(int=self._random.getrandbits(128), version=4)}"
        return await self._wait(slot, lambda ticket, now: slot.group.join(ticket, request, new_id, now))

    async def sync(
        self,
        name: str,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes],
        *,
        instance_id: str | None = None,
        protocol: tuple[str | None, str | None] = (None, None),
    ) -> SyncResponse:
        """Return the assignment of a member, once the leader has sent it and it is durable. The leader sends all of them."""
        slot = self._known(name)

        def sync(ticket: int, now: float) -> list[Effect]:
            return slot.group.sync(ticket, member_id, generation, assignments, now, instance_id=instance_id, protocol=protocol)

        return await self._wait(slot, sync)

    def heartbeat(self, name: str, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Extend the session of a member. Raises RebalanceError if it must join again."""
        self._known(name).group.heartbeat(member_id, generation, self._clock.monotonic(), instance_id)

    def leave(self, name: str, member_id: str, instance_id: str | None = None) -> None:
        """Take a member out of its group."""
        slot = self._known(name)
        self._apply(slot, slot.group.leave(member_id, self._clock.monotonic(), instance_id))

    def describe(self, name: str) -> GroupDescription:
        """A group as it is shown."""
        slot = self._slots.get(name)
        if slot is None:
            raise UnknownGroupError(f"there is no classic group {name!r}")
        group = slot.group
        is_stable = group.state is GroupState.STABLE
        members = tuple(
            DescribedMember(
                member.id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(group.protocol_name) if is_stable else b"",
                member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        )
        protocol_name = group.protocol_name if is_stable else ""
        return GroupDescription(name, group.state.value, group.protocol_type, protocol_name, members)

    def release(self) -> None:
        """Fail all joins and syncs that wait, since the broker stops. The groups do nothing from here on; the next start
        continues from what is stored."""
        self._is_stopped = True
        for slot in self._slots.values():
            if slot.timer is not None:
                slot.timer.cancel()
        error = NotCoordinatorError(STOPPED)
        for slot in list(self._slots.values()):
            self._apply(slot, slot.group.release(error))

    async def stop(self) -> None:
        """Answer all waiting requests, and finish the writes in flight."""
        self.release()
        await asyncio.gather(*self._tasks)

    # What all kinds of groups can be asked.

    def names(self) -> Iterable[str]:
        """Its groups, with and without members."""
        return list(self._slots)

    def has(self, name: str) -> bool:
        """Whether it has this group."""
        return name in self._slots

    def summary(self, name: str) -> GroupSummary:
        """A group as it is listed."""
        group = self._slots[name].group
        return GroupSummary(name, CLASSIC, group.state.value, group.protocol_type)

    def empty_since_ms(self, name: str) -> int | None:
        """The wall clock time since which a group has no members; None while it has any."""
        slot = self._slots[name]
        return slot.empty_since_ms if slot.group.is_idle else None

    def subscribes(self, name: str, topic: str) -> bool:
        """Whether a member of the group may read the topic. Of one whose metadata says nothing about topics, it is assumed."""
        group = self._slots[name].group
        if group.protocol_type != CONSUMER_PROTOCOL:
            return bool(group.members)
        offered = {protocol.metadata for member in group.members.values() for protocol in member.protocols}
        return any(topics is None or topic in topics for topics in map(subscribed_topics, offered))

    def check_commit(self, name: str, member_id: str, generation: int, instance_id: str | None, *, in_transaction: bool) -> None:
        """Raise unless the group takes positions from this member now."""
        now = self._clock.monotonic()
        self._slots[name].group.check_commit(member_id, generation, now, instance_id, in_transaction=in_transaction)

    def check_fetch(self, name: str, member_id: str, epoch: int) -> None:
        """Do nothing: any client may fetch the committed offsets of a classic group."""

    def forget(self, name: str) -> tuple[Command, ...]:
        """Forget a group without members. Returns the commands that delete its records from the tablet."""
        slot = self._slots.pop(name)
        if slot.timer is not None:
            slot.timer.cancel()
        return self._store.forget(name)

    # Groups on the loop.

    def _known(self, name: str) -> _GroupSlot:
        check_group_name(name)
        slot = self._slots.get(name)
        if slot is None:
            raise UnknownMemberError(f"group {name!r} has no members; join it again")
        return slot

    async def _known_or_new(self, name: str) -> _GroupSlot:
        check_group_name(name)
        slot = self._slots.get(name)
        if slot is not None:
            return slot
        try:
            erased = self._groups.take(name, CLASSIC)
        except NonEmptyGroupError as error:
            raise InconsistentProtocolError(str(error)) from error
        options = self._options
        group = ClassicGroup(name, initial_delay_s=options.initial_rebalance_delay_ms / 1000, members_max=options.members_max)
        slot = self._slots[name] = _GroupSlot(group, self._wall_ms(), is_stored=False)
        if erased:
            try:
                await self._tablet.execute(Request(erased, makes_room=True))
            except PenstockError as error:
                raise CoordinatorUnavailableError(f"group {name!r} cannot change its kind now: {error}") from error
        return self._slots.setdefault(name, slot)

    async def _wait(self, slot: _GroupSlot, ask: Callable[[int, float], list[Effect]]) -> A:
        """Pass a request to the group, and wait for the response."""
        if self._is_stopped:
            raise NotCoordinatorError(STOPPED)
        ticket = next(self._tickets)
        response: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = response
        try:
            self._apply(slot, ask(ticket, self._clock.monotonic()))
            return await response
        finally:
            self._waiting.pop(ticket, None)

    def _apply(self, slot: _GroupSlot, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(ticket, response):
                    self._resolve(ticket, response)
                case Store(serial):
                    self._save(slot, serial)
        self._schedule(slot)

    def _resolve(self, ticket: int, response: JoinResponse | SyncResponse | PenstockError) -> None:
        waiting = self._waiting.get(ticket)
        # The request may have been cancelled; the group notices when the member's session expires.
        if waiting is None or waiting.done():
            return
        if isinstance(response, PenstockError):
            waiting.set_exception(response)
        else:
            waiting.set_result(response)

    def _save(self, slot: _GroupSlot, serial: int) -> None:
        group = slot.group
        if not group.members:
            slot.empty_since_ms = self._wall_ms()
        slot.is_stored = True
        # It is packed now: the members change while it is written.
        self._spawn(self._finish_save(slot, serial, pack_group(group.record(slot.empty_since_ms))))

    async def _finish_save(self, slot: _GroupSlot, serial: int, packed: bytes) -> None:
        if self._slots.get(slot.group.name) is not slot:
            # The group was deleted since.
            return
        failure: PenstockError | None = None
        try:
            await self._store.save(slot.group.name, packed)
        except PenstockError as error:
            log.warning("the state of group %r is not stored: %s", slot.group.name, error)
            failure = error
        self._apply(slot, slot.group.stored(serial, failure, self._clock.monotonic()))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _schedule(self, slot: _GroupSlot) -> None:
        """Set the timer for when the group is due. A deadline that heartbeats have moved is noticed when the timer fires."""
        if self._slots.get(slot.group.name) is not slot or self._is_stopped:
            return
        due = slot.group.next_due()
        if slot.timer is not None:
            if due is not None and slot.due <= due:
                return
            slot.timer.cancel()
            slot.timer = None
        if due is not None:
            slot.due = due
            delay_s = max(due - self._clock.monotonic(), 0.0)
            slot.timer = asyncio.get_running_loop().call_later(delay_s, self._tick, slot)
        elif slot.group.is_idle and not slot.is_stored:
            # A member id was given out and never used: there is no group.
            del self._slots[slot.group.name]

    def _tick(self, slot: _GroupSlot) -> None:
        slot.timer = None
        self._apply(slot, slot.group.tick(self._clock.monotonic()))

    def _wall_ms(self) -> int:
        return int(self._clock.wall() * 1000)


def check_group_name(name: str) -> None:
    """InvalidGroupNameError unless a group can have this name."""
    raw = name.encode()
    if not raw or len(raw) > NAME_SIZE_MAX or b"\0" in raw:
        raise InvalidGroupNameError(f"a group's name has 1 to {NAME_SIZE_MAX} bytes, none of them zero")
