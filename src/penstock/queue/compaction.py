"""Log compaction: of each key only the last message is kept (seed 003).

A pass goes over the bodies of a partition from its start. What was written since the last pass is *dirty*: its keys go into a map
of fixed size, and whatever an offset in the map supersedes, in the dirty part or before it, is left out as the bodies are copied.
When the map is full the pass ends there, and the next one goes on.

     start        clean to           noted to        last stable offset, or too young
     | clean bodies   | dirty bodies     | next pass      |  not touched     | head, not touched |
     |<---------- copied if anything goes -->|

Bodies are replaced group by group, from the start on: what is left of some neighbours becomes one body of full size. Its
bytes are written first, a little at a time under keys of their own, so that producers never wait for long; then a single
request puts them in place and deletes the old bodies. A small body is written by that request itself. A crash in between leaves
staged bytes that the next pass deletes. Every group leaves the partition right: a message goes only when a later one of its key
is there, and a tombstone only after all before it are gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from random import Random
from typing import NamedTuple, Protocol, TypeVar

from penstock.blob import Buffer
from penstock.core.clock import Clock
from penstock.queue import keys
from penstock.queue.body import Body, BodyChange
from penstock.queue.clean_state import CleanState
from penstock.queue.errors import BodyReplacedError
from penstock.queue.key_map import KeyMap
from penstock.queue.partition import Partition
from penstock.queue.piece import Marks
from penstock.queue.sifting import AbortedIndex, Remnant, Scratch, Sieve, note_keys
from penstock.queue.transactions import Aborted
from penstock.tablet import Command, Concat, DeleteRange, Request, Write

MAP_BYTES = 64 << 20
STAGE_BYTES = 1 << 20  # written in one request: other writes to the tablet wait at most this long
WORK_BYTES = 8 << 20  # of bodies that are read, then worked on at once
SPAN_MAX = (1 << 32) - 1  # of offsets in one body, as its key says them

T = TypeVar("T")
HeldFrom = Callable[[], int | None]
"""The first offset that a lease protects from compaction; None without leases."""
Stretch = list[tuple[Body, list[Buffer]]]
"""Bodies that follow one another, with their batches."""


class Offload(Protocol):
    """Runs work on bytes beside the event loop; `asyncio.to_thread` is one."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """What the work returns."""
        ...


class PassSummary(NamedTuple):
    """What a pass did. An incomplete pass was interrupted by a trim or a lease; the next one starts over."""

    clean_to: int
    bytes_read: int
    bytes_freed: int
    keys: int
    is_complete: bool


class Dirt(NamedTuple):
    """The bodies a pass would go over, and how much of them no pass has covered."""

    bodies: tuple[Body, ...]
    clean_to: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        """The part that is dirty."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes) if self.dirty_bytes else 0.0


def dirt_of(partition: Partition, now_ms: int, held_from: int | None = None) -> Dirt:
    """What compaction may touch of a partition now: bodies below the last stable offset that are old enough and not held."""
    config = partition.config
    clean_to = max(partition.clean.clean_to, partition.start_offset)
    bodies: list[Body] = []
    clean_bytes = dirty_bytes = 0
    is_overdue = False
    limit = partition.stable_offset
    if held_from is not None:
        # A pass comes to the end of what is clean, or does not begin.
        limit = min(limit, held_from) if held_from >= clean_to else 0
    for body in partition.bodies:
        is_dirty = body.next_offset > clean_to
        is_young = config.min_compaction_lag_ms > 0 and body.max_timestamp > now_ms - config.min_compaction_lag_ms
        if body.next_offset > limit or (is_dirty and is_young):
            break
        bodies.append(body)
        if is_dirty:
            dirty_bytes += body.size
            is_overdue |= _is_overdue(body.min_timestamp, config.max_compaction_lag_ms, now_ms)
        else:
            clean_bytes += body.size
    return Dirt(tuple(bodies), clean_to, clean_bytes, dirty_bytes, is_overdue)


def is_due(partition: Partition, dirt: Dirt, now_ms: int) -> bool:
    """Whether a pass is worth its while: enough is dirty, some of it for too long, or all tombstones may go."""
    config = partition.config
    if dirt.dirty_bytes and (dirt.ratio >= config.min_dirty_ratio or dirt.is_overdue):
        return True
    return bool(dirt.bodies) and partition.clean.is_ripe(now_ms, config.delete_retention_ms)


async def compact(
    partition: Partition,
    *,
    clock: Clock,
    random: Random,
    offload: Offload,
    map_bytes: int = MAP_BYTES,
    held_from: HeldFrom = lambda: None,
) -> PassSummary | None:
    """Do a pass over a partition if its topic asks for it and one is due; None if not."""
    if not partition.config.is_compacted or partition.compacting.locked():
        return None
    async with partition.compacting:
        now_ms = int(clock.wall() * 1000)
        if _is_head_due(partition, now_ms):
            await partition.roll_head()
        dirt = dirt_of(partition, now_ms, held_from())
        if not is_due(partition, dirt, now_ms):
            return None
        ripe_to = partition.clean.ripened(now_ms, partition.config.delete_retention_ms)
        one_pass = _Pass(partition, dirt, ripe_to, held_from, clock=clock, offload=offload)
        return await one_pass.run(KeyMap(_records_max(dirt), map_bytes, random))


class _Group:
    """Neighbouring bodies that become one, and what is left of each."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bodies: list[Body] = []
        self.remnants: list[Remnant] = []
        self.forgotten: list[Aborted] = []
        self.size = 0

    def takes(self, body: Body, remnant: Remnant) -> bool:
        """Whether the body still fits."""
        if not self.bodies:
            return True
        span = body.next_offset - self.bodies[0].first_offset
        return self.size + remnant.size <= self._bytes_max and span <= SPAN_MAX

    def add(self, body: Body, remnant: Remnant, forgotten: list[Aborted]) -> None:
        """The body that follows."""
        self.bodies.append(body)
        self.remnants.append(remnant)
        self.forgotten += forgotten
        self.size += remnant.size

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to replace."""
        return len(self.bodies) > 1 or any(remnant.is_changed for remnant in self.remnants)

    def made(self) -> tuple[Body, Marks] | None:
        """The body that replaces them, and its marks; None if nothing is left. A mark also covers the deleted offsets before its
        batch, so that a fetch at one of them gets that batch."""
        first = self.bodies[0]
        marks = Marks()
        stamps: list[int] = []
        offset, base = first.first_offset, 0
        for remnant in self.remnants:
            for position, next_offset, latest in remnant.batches:
                marks.add(offset, base + position, latest)
                stamps.append(latest)
                offset = next_offset
            base += remnant.size
        if not stamps:
            return None
        known = [stamp for stamp in stamps if stamp >= 0] or [-1]
        messages = offset - first.first_offset
        hidden = messages - sum(remnant.messages for remnant in self.remnants)
        body = Body(first.partition, first.first_offset, messages, base, len(marks.pack()), min(known), max(known), hidden)
        if body in self.bodies:
            # Recompressed, it has the same key as the old body. Repeating a mark is harmless and makes the keys differ.
            marks.repeat_last()
            body = body._replace(marks_size=len(marks.pack()))
        return body, marks


class _Pass:
    """One pass over a partition."""

    def __init__(
        self, partition: Partition, dirt: Dirt, ripe_to: int, held_from: HeldFrom, *, clock: Clock, offload: Offload
    ) -> None:
        self._partition = partition
        self._held_from = held_from
        self._dirt = dirt
        self._ripe_to = ripe_to
        self._clock = clock
        self._offload = offload
        self._scratch = Scratch()
        self._bytes_read = 0
        self._bytes_freed = 0

    async def run(self, key_map: KeyMap) -> PassSummary:
        """Note keys, then copy."""
        partition = self._partition
        await self._clear_staged()
        aborted = AbortedIndex(partition.aborted_between(partition.start_offset, partition.stable_offset))
        noted_to = self._dirt.clean_to
        try:
            noted_to = await self._note(key_map, aborted)
            is_complete = await self._copy(key_map, aborted, noted_to)
        except BodyReplacedError:
            is_complete = False  # trimmed before it was read
        return PassSummary(noted_to, self._bytes_read, self._bytes_freed, key_map.keys, is_complete)

    async def _copy(self, key_map: KeyMap, aborted: AbortedIndex, noted_to: int) -> bool:
        """Copy what is left of the bodies; False if a trim or a lease was faster."""
        covered = [body for body in self._dirt.bodies if body.first_offset < noted_to]
        sieve = Sieve(key_map, aborted, noted_to=noted_to, ripe_to=self._ripe_to)
        group = _Group(self._partition.config.body_bytes)
        waiting = 0
        for bodies in _stretches(covered):
            stretch = await self._read(bodies)
            for body, remnant, forgotten in await self._offload(partial(_sift, sieve, stretch, covered[-1], self._scratch)):
                waiting += remnant.waiting
                if not group.takes(body, remnant):
                    if not await self._replace(group):
                        return False
                    group = _Group(self._partition.config.body_bytes)
                group.add(body, remnant, forgotten)
        now_ms = int(self._clock.wall() * 1000)
        state = self._partition.clean.after(noted_to, self._ripe_to, now_ms, is_waiting=bool(waiting))
        return await self._replace(group, state)

    async def _note(self, key_map: KeyMap, aborted: AbortedIndex) -> int:
        """Fill the map from the dirty bodies; up to where it came."""
        clean_to = self._dirt.clean_to
        dirty = [body for body in self._dirt.bodies if body.next_offset > clean_to]
        for bodies in _stretches(dirty):
            stretch = await self._read(bodies)
            full_at = await self._offload(partial(_note, key_map, stretch, aborted, clean_to, self._scratch))
            if full_at is not None:
                return full_at
        return self._dirt.bodies[-1].next_offset

    async def _read(self, bodies: list[Body]) -> Stretch:
        self._bytes_read += sum(body.size for body in bodies)
        return [(body, await self._partition.body_data(body)) for body in bodies]

    async def _replace(self, group: _Group, state: CleanState | None = None) -> bool:
        """Put what is left of a group in its place, and the state with the last one; False if a trim or a lease was faster."""
        partition = self._partition
        if not group.is_changed:
            return state is None or await partition.swap((), None, BodyChange(clean=state))
        replacement = await self._offload(group.made)
        made_by = () if replacement is None else await self._write(group, *replacement)
        new_body = None if replacement is None else replacement[0]
        held_from = self._held_from()
        was_replaced = (held_from is None or group.bodies[-1].next_offset <= held_from) and await partition.swap(
            group.bodies, new_body, BodyChange(made_by, tuple(group.forgotten), state)
        )
        if was_replaced:
            self._bytes_freed += sum(body.size for body in group.bodies) - (0 if replacement is None else replacement[0].size)
        else:
            await self._clear_staged()
        return was_replaced

    async def _write(self, group: _Group, body: Body, marks: Marks) -> tuple[Command, ...]:
        """The commands that make a body. A small one is written by them, the bytes of a large one before."""
        # On a full disk, what gives back more than it takes may go on.
        makes_room = 2 * body.size <= sum(replaced.size for replaced in group.bodies)
        buffers = [buffer for remnant in group.remnants for buffer in remnant.buffers]
        if makes_room and body.size <= STAGE_BYTES:
            return (Write(body.key, (*buffers, marks.pack()), body.description.pack()),)
        staged = await self._stage(buffers, makes_room=makes_room)
        packed = keys.staged_key(self._partition.number, len(staged))
        return Write(packed, marks.pack()), Concat((*staged, packed), body.key, body.description.pack())

    async def _stage(self, buffers: list[Buffer], *, makes_room: bool) -> list[bytes]:
        """Write the bytes of a body under keys of their own, a request each for a little of it: others write in between."""
        staged: list[bytes] = []
        for parts in _portions(buffers, STAGE_BYTES):
            staged.append(keys.staged_key(self._partition.number, len(staged)))
            await self._partition.tablet.execute(Request((Write(staged[-1], parts),), makes_room=makes_room))
        return staged

    async def _clear_staged(self) -> None:
        """Delete the staged bytes of an unfinished pass."""
        own = keys.prefix(b"w", self._partition.number)
        tablet = self._partition.tablet
        if next(tablet.keys(own, keys.past(own)), None) is not None:
            await tablet.execute(Request((DeleteRange(own, keys.past(own)),), makes_room=True))


def _stretches(bodies: Iterable[Body]) -> Iterator[list[Body]]:
    """Bodies in order, as many at a time as are worth a thread."""
    stretch: list[Body] = []
    size = 0
    for body in bodies:
        if stretch and size + body.size > WORK_BYTES:
            yield stretch
            stretch, size = [], 0
        stretch.append(body)
        size += body.size
    if stretch:
        yield stretch


def _note(key_map: KeyMap, stretch: Stretch, aborted: AbortedIndex, from_offset: int, scratch: Scratch) -> int | None:
    """Put the keys of some bodies into a map; the first offset that found no room."""
    return note_keys(key_map, scratch.joined([buffer for _, buffers in stretch for buffer in buffers]), aborted, from_offset)


def _sift(sieve: Sieve, stretch: Stretch, last: Body, scratch: Scratch) -> list[tuple[Body, Remnant, list[Aborted]]]:
    """What is left of each of some bodies, and the aborted transactions of which nothing is left then."""
    sifted: list[tuple[Body, Remnant, list[Aborted]]] = []
    for body, buffers in stretch:
        remnant = sieve.sift(scratch.joined(buffers), is_last=body is last)
        sifted.append((body, remnant, sieve.forgotten))
        sieve.forgotten = []
    return sifted


def _portions(buffers: Iterable[Buffer], size_max: int) -> Iterator[tuple[Buffer, ...]]:
    """The same bytes in portions of a size, but for the last one, without joining them."""
    portion: list[Buffer] = []
    room = size_max
    for buffer in buffers:
        view = memoryview(buffer)
        while view:
            portion.append(view[:room])
            view, room = view[room:], room - len(portion[-1])
            if not room:
                yield tuple(portion)
                portion, room = [], size_max
    if portion:
        yield tuple(portion)


def _is_head_due(partition: Partition, now_ms: int) -> bool:
    """Whether the head is too old or too large to be left out."""
    config = partition.config
    lags = (config.max_compaction_lag_ms, config.segment_ms)
    is_large = config.segment_bytes is not None and partition.head_size >= config.segment_bytes
    return is_large or any(_is_overdue(partition.head_since_ms, lag_ms, now_ms) for lag_ms in lags)


def _records_max(dirt: Dirt) -> int:
    """How many records the dirty part has at most."""
    spans = (body.next_offset - max(body.first_offset, dirt.clean_to) for body in dirt.bodies)
    return sum(span for span in spans if span > 0)


def _is_overdue(since_ms: int | None, lag_ms: int | None, now_ms: int) -> bool:
    return since_ms is not None and lag_ms is not None and 0 <= since_ms < now_ms - lag_ms


async def in_place(work: Callable[[], T]) -> T:
    """An offload that runs the work where it is: for simulations, which have no threads."""
    await asyncio.sleep(0)
    return work()
