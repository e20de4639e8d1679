"""The coordinator of groups that it assigns partitions to: it feeds their heartbeats and timers, and keeps what changes.

Heartbeats of a group that arrive during a write are processed together and stored by the next write. A member gets
its response when everything in it is durable; if the write fails, the changes are rolled back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import NamedTuple, Protocol
from uuid import UUID

from penstock.broker.consumers import TopicPartition
from penstock.broker.groups.consumer_errors import StaleMemberError
from penstock.broker.groups.consumer_group import (
    JOIN_EPOCH,
    Changes,
    ConsumerGroup,
    ConsumerGroupOptions,
    Heartbeat,
    HeartbeatResponse,
)
from penstock.broker.groups.consumer_records import GROUP, MEMBER, PREFIX, GroupRecord, Member, key_of, unpack_target
from penstock.broker.groups.errors import (
    CoordinatorUnavailableError,
    GroupError,
    InvalidGroupNameError,
    NonEmptyGroupError,
    NotCoordinatorError,
    StaleGenerationError,
    UnknownGroupError,
)
from penstock.broker.groups.group_configs import GroupConfigs
from penstock.broker.groups.registry import CONSUMER, GroupSummary
from penstock.broker.groups.subscriptions import Topics
from penstock.broker.topic import NAME_SIZE_MAX
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.tablet import Command, DeleteRange, KvTablet, Request

log = logging.getLogger(__name__)

TEXT_SIZE_MAX = 1000
CONSUMER_PROTOCOL = "consumer"


class Names(Protocol):
    """The namespace of groups of all kinds."""

    def take(self, name: str, kind: str) -> tuple[Command, ...]:
        """Make a group one of this kind; NonEmptyGroupError if it has members of another."""
        ...


class _PendingHeartbeat(NamedTuple):
    """A heartbeat that waits to be processed."""

    beat: Heartbeat
    response: asyncio.Future[HeartbeatResponse]


class _Slot:
    """A group, its pending heartbeats, its worker and its timer. `group` is None until a member joins, and after a deletion."""

    def __init__(self) -> None:
        self.group: ConsumerGroup | None = None
        self.waiting: list[_PendingHeartbeat] = []
        self.is_late = False  # whether members may have to be removed
        self.erasing: tuple[Command, ...] = ()  # what is left in the tablet of the kind the group was of before
        self.worker: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None


class ConsumerCoordinator:
    """All groups of this kind on a broker, once `load` has taken up those that are stored."""

    def __init__(
        self,
        tablet: KvTablet,
        options: ConsumerGroupOptions,
        *,
        names: Names,
        topics: Callable[[], Topics],
        clock: Clock,
        random: Random,
    ) -> None:
        self.options = options
        self._random = random
        self.configs = GroupConfigs(tablet, options)
        self._tablet = tablet
        self._names = names
        self._topics = topics
        self._clock = clock
        self._slots: dict[str, _Slot] = {}
        self._stopped = False

    def load(self) -> None:
        """Load the groups that are stored. The sessions of their members start now."""
        for name, group in self._stored(PREFIX, bytes([PREFIX[0] + 1])).items():
            slot = self._slots.setdefault(name, _Slot())
            slot.group = group
            self._set_timer(name, slot)

    def group(self, name: str) -> ConsumerGroup | None:
        """A group as it is now, to look at."""
        slot = self._slots.get(name)
        return None if slot is None else slot.group

    def new_member_id(self) -> str:
        """An id for a member that has none of its own."""
        return str(UUID(int=self._random.getrandbits(128), version=4))

    async def heartbeat(self, name: str, beat: Heartbeat) -> HeartbeatResponse:
        """Process a heartbeat. The response is durable. Raises GroupError, FencedInstanceError or UnavailableError."""
        if self._stopped:
            raise NotCoordinatorError("the broker is stopping")
        _check_texts(name, beat)
        slot = self._slots.setdefault(name, _Slot())
        response: asyncio.Future[HeartbeatResponse] = asyncio.get_running_loop().create_future()
        slot.waiting.append(_PendingHeartbeat(beat, response))
        self._wake(name, slot)
        return await response

    async def configure(self, name: str, own: Mapping[str, str]) -> None:
        """Replace the settings of a group, which need not exist. InvalidConfigError if they are invalid."""
        await self.configs.set(name, own)
        group = self.group(name)
        if group is not None:
            group.options = self.configs.options(name)

    def names(self) -> Iterable[str]:
        """Its groups, with and without members."""
        return [name for name, slot in self._slots.items() if slot.group is not None]

    def has(self, name: str) -> bool:
        """Whether it has this group."""
        return self.group(name) is not None

    def summary(self, name: str) -> GroupSummary:
        """A group as it is listed."""
        return GroupSummary(name, CONSUMER, self._group(name).state, CONSUMER_PROTOCOL)

    def empty_since_ms(self, name: str) -> int | None:
        """The wall clock time since which a group has no members; None while it has any."""
        group = self._group(name)
        return None if group.members else group.record.empty_since_ms

    def subscribes(self, name: str, topic: str) -> bool:
        """Whether a member of the group may read the topic."""
        topics = self._topics()
        shape = topics.by_name.get(topic)
        return shape is not None and shape.id in self._group(name).subscribed(topics)

    def check_commit(self, name: str, member_id: str, generation: int, instance_id: str | None, *, in_transaction: bool) -> None:
        """Raise unless the group takes positions from this member in this epoch. -1 and an empty id are of no member."""
        if in_transaction and not member_id and generation < 0:
            return
        try:
            self._group(name).check_commit(member_id, generation)
        except StaleMemberError as error:
            # A transaction cannot retry after a heartbeat: it fails, as in a classic group.
            raise StaleGenerationError(str(error)) if in_transaction else error from None

    def check_fetch(self, name: str, member_id: str, epoch: int) -> None:
        """Raise if this member may not ask for positions of the group, because it is none, or behind. -1 is of no member."""
        if epoch >= 0:
            self._group(name).check_fetch(member_id, epoch)

    def release(self) -> None:
        """Do nothing: in a group of this kind no request waits for other members."""

    def forget(self, name: str) -> tuple[Command, ...]:
        """Forget a group without members. Returns the commands that delete its records from the tablet."""
        assert not self._group(name).members
        self._slots[name].group = None
        return (DeleteRange(key_of(name), _past(name)),)

    async def stop(self) -> None:
        """Cancel all work, and fail the heartbeats that wait."""
        self._stopped = True
        workers = [slot.worker for slot in self._slots.values() if slot.worker is not None]
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        for slot in self._slots.values():
            if slot.timer is not None:
                slot.timer.cancel()
            _fail(slot.waiting, NotCoordinatorError("the broker is stopping"))

    def _group(self, name: str) -> ConsumerGroup:
        group = self.group(name)
        if group is None:
            raise UnknownGroupError(f"there is no group {name!r} of kind {CONSUMER!r}")
        return group

    def _stored(self, begin: bytes, end: bytes) -> dict[str, ConsumerGroup]:
        """The groups whose records are in a range of keys."""
        records: dict[str, GroupRecord] = {}
        members: dict[str, list[Member]] = {}
        targets: dict[str, dict[str, frozenset[TopicPartition]]] = {}
        for key in self._tablet.keys(begin, end):
            raw_name, _, rest = key[len(PREFIX) :].partition(b"\0")
            name, kind, member_id = raw_name.decode(), rest[:1], rest[1:].decode()
            raw = self._tablet.head(key) or b""
            if kind == GROUP:
                records[name] = GroupRecord.unpack(raw)
            elif kind == MEMBER:
                members.setdefault(name, []).append(Member.unpack(member_id, raw))
            else:
                targets.setdefault(name, {})[member_id] = unpack_target(raw)
        return {
            name: ConsumerGroup.restore(
                name,
                self.configs.options(name),
                self._clock,
                record=record,
                members=members.get(name, ()),
                targets=targets.get(name, {}),
            )
            for name, record in records.items()
        }

    def _wake(self, name: str, slot: _Slot) -> None:
        if slot.worker is None and not self._stopped:
            slot.worker = asyncio.create_task(self._work(name, slot), name=f"group-{name}")

    async def _work(self, name: str, slot: _Slot) -> None:
        """Process pending heartbeats, batch by batch, until there are none."""
        batch: list[_PendingHeartbeat] = []
        try:
            while slot.waiting or slot.is_late:
                batch, slot.waiting = slot.waiting, []
                try:
                    await self._carry_out(name, slot, batch)
                except Exception:
                    log.exception("group %s failed; it continues from what was stored last", name)
                    slot.group = self._stored(key_of(name), _past(name)).get(name)
                    _fail(
                        batch,
                        CoordinatorUnavailableError("the heartbeat could not be carried out; the log of the broker says why"),
                    )
        finally:
            _fail(batch, NotCoordinatorError("the broker is stopping"))
            slot.worker = None
            self._after_batch(name, slot)

    async def _carry_out(self, name: str, slot: _Slot, batch: list[_PendingHeartbeat]) -> None:
        if slot.is_late:
            slot.is_late = False
            if slot.group is not None:
                slot.group.expire()
        responses = self._responses(name, slot, batch)
        group = slot.group
        changes = group.take_changes() if group is not None else Changes((), {})
        error = await self._store(slot, changes.commands)
        if error is not None:
            if group is not None:
                group.roll_back(changes)
            if not batch:
                # No client retries this: the timer removes the late members when it fires next.
                log.warning("members of group %s that are late cannot be removed now: %s", name, error)
        for waiting, response in responses:
            outcome = error or response
            if isinstance(outcome, PenstockError):
                _fail([waiting], outcome)
            elif not waiting.response.done():
                waiting.response.set_result(outcome)

    def _responses(
        self, name: str, slot: _Slot, batch: list[_PendingHeartbeat]
    ) -> list[tuple[_PendingHeartbeat, HeartbeatResponse | PenstockError]]:
        """Returns the responses to a batch, to be sent once they are durable."""
        if slot.group is None:
            refused = self._make_group(name, slot, batch)
            if refused is not None:
                return [(waiting, refused) for waiting in batch]
        assert slot.group is not None
        answers = slot.group.heartbeats([waiting.beat for waiting in batch], self._topics())
        return list(zip(batch, answers, strict=True))

    async def _store(self, slot: _Slot, commands: tuple[Command, ...]) -> PenstockError | None:
        """Make changes durable. Returns the error if that fails."""
        commands = slot.erasing + commands
        if not commands:
            return None
        try:
            # Members must be able to read on, and so make room, while the disks are full.
            await self._tablet.execute(Request(commands, makes_room=True))
        except PenstockError as error:
            kind = CoordinatorUnavailableError if error.retriable else NotCoordinatorError
            return kind(f"the state of the group cannot be kept now: {error}")
        slot.erasing = ()
        return None

    def _make_group(self, name: str, slot: _Slot, batch: list[_PendingHeartbeat]) -> PenstockError | None:
        """Create the group for a member that joins, or convert an empty one of another kind. Returns the error if that fails."""
        if all(waiting.beat.epoch != JOIN_EPOCH for waiting in batch):
            return UnknownGroupError(f"there is no group {name!r} of kind {CONSUMER!r}; join it")
        try:
            slot.erasing += self._names.take(name, CONSUMER)
        except NonEmptyGroupError as error:
            return UnknownGroupError(str(error))
        slot.group = ConsumerGroup(name, self.configs.options(name), self._clock)
        return None

    def _after_batch(self, name: str, slot: _Slot) -> None:
        """Drop the slot of a group that was not created, or set the timer of one that exists."""
        if slot.group is not None and slot.group.record.epoch == 0:
            slot.group = None
        if slot.group is None and not slot.waiting and not slot.erasing:
            if slot.timer is not None:
                slot.timer.cancel()
            self._slots.pop(name, None)
        else:
            self._set_timer(name, slot)

    def _set_timer(self, name: str, slot: _Slot) -> None:
        expiry = None if slot.group is None else slot.group.next_expiry()
        loop = asyncio.get_running_loop()
        if expiry is None or self._stopped:
            return
        delay = max(expiry - self._clock.monotonic(), 0.001)
        if slot.timer is not None:
            if slot.timer.when() <= loop.time() + delay:
                return  # it will look again then
            slot.timer.cancel()
        slot.timer = loop.call_later(delay, self._expire_late, name, slot)

    def _expire_late(self, name: str, slot: _Slot) -> None:
        slot.timer = None
        slot.is_late = True
        self._wake(name, slot)


def _past(name: str) -> bytes:
    """The end of the range of a group's keys."""
    return key_of(name)[:-1] + b"\1"


def _fail(batch: Iterable[_PendingHeartbeat], error: PenstockError) -> None:
    for waiting in batch:
        if not waiting.response.done():
            waiting.response.set_exception(error)


def _check_texts(name: str, beat: Heartbeat) -> None:
    raw = name.encode()
    if not raw or len(raw) > TEXT_SIZE_MAX or b"\0" in raw:
        raise InvalidGroupNameError(f"a group's name has 1 to {TEXT_SIZE_MAX} bytes, none of them zero")
    for text in (beat.member_id, beat.instance_id, beat.rack_id, beat.client_id, beat.client_host, beat.assignor):
        if text is not None and len(text.encode()) > TEXT_SIZE_MAX:
            raise GroupError(f"{text[:50]!r}... has {len(text.encode())} bytes, at most {TEXT_SIZE_MAX} are taken")
    long = next((topic for topic in beat.names or () if len(topic) > NAME_SIZE_MAX), None)
    if long is not None:
        raise GroupError(f"{long[:50]!r}... cannot name a topic: names have at most {NAME_SIZE_MAX} characters")
