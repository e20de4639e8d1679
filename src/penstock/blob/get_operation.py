"""Reading one blob from a group: straight from the disks that hold the range, and around them when they cannot give it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from penstock.blob.blob_id import BLOB_SIZE_MAX, PREFIX_SIZE, BlobId
from penstock.blob.disk import Buffer
from penstock.blob.group import Group
from penstock.blob.link import PartsReply
from penstock.blob.quorum import absence_proven, fits_fail_model, put_excluded
from penstock.blob.status import Status
from penstock.blob.topology import Erasure, main_part
from penstock.core.clock import Clock

DISK_TIMEOUT_S = 10.0
REMOTE_S = 0.001  # what a read from another node takes longer


class GetResult(NamedTuple):
    """What became of one read. `data` is empty unless the status is OK. An ERROR is `damaged` if every disk has answered, and too
    little of the blob is left sound: no other try gives it."""

    status: Status
    data: bytes | memoryview = b""
    reason: str = ""
    damaged: bool = False


class GetOperation:
    """One read from a group of several disks; offset and length lie within the blob. `held` are the parts that a listing has
    shown of it, by subgroup index, if there was one: disks without them are not asked first."""

    def __init__(
        self, group: Group, clock: Clock, blob_id: BlobId, offset: int, length: int, *, held: Sequence[int] | None = None
    ) -> None:
        self._group = group
        self._clock = clock
        self._generation = group.generation
        self._prefix = blob_id.pack()[:PREFIX_SIZE]
        self._size = blob_id.size
        self._offset = offset
        self._length = length
        self._orders = group.subgroup(self._prefix)
        self._held = held

    async def run(self) -> GetResult:
        """Read the range from the main disks, or failing that all parts from all disks."""
        slices = self._slices()
        if slices:
            straight = await self._read_straight(slices)
            if straight is not None:
                return straight
        return await self._read_around()

    def _packed(self, part: int) -> bytes:
        return self._prefix + (self._size << 4 | part).to_bytes(4, "big")

    async def _ask(self, order: int, part: int, offset: int, length: int) -> PartsReply:
        link = self._group.links[order]
        if link is None:
            return PartsReply(Status.ERROR, (), f"VDisk {self._group.vdisk_id(order)} is out")
        return await link.get(self._generation, self._packed(part), offset, length)

    async def _read_straight(self, slices: Sequence[tuple[int, int, int]]) -> GetResult | None:
        """The range from the places where it should be; None if any of them cannot give it in time."""
        asked = [
            self._group.spawn(self._ask(self._orders[self._main_index(part)], part, offset, length))
            for part, offset, length in slices
        ]
        _, late = await asyncio.wait(asked, timeout=self._group.hedge_delay(self._clock.monotonic()))
        if late:
            return None
        pieces: list[Buffer] = []
        for task in asked:
            reply: PartsReply = task.result()
            if reply.status is Status.RACE:
                return GetResult(Status.RACE, b"", "the group changed")
            if reply.status is not Status.OK:
                return None
            pieces.append(reply.parts[0][1])
        return GetResult(Status.OK, _joined(pieces))

    def _slices(self) -> list[tuple[int, int, int]]:
        """The parts in their main places that give the range, with what to read of each; none if they are known not to."""
        slices = self._group.codec.slices(self._size, self._offset, self._length)
        if not self._group.erasure.is_mirror:
            return slices if all(self._may_be_in_place(part) for part, _, _ in slices) else []
        # Any replica will do: the one on the quickest disk, and of those as quick one that is here.
        replicas = [part for part in (1, 2, 3) if self._may_be_in_place(part)]
        if not replicas:
            return []
        part = min(replicas, key=lambda part: self._expected_s(self._orders[part - 1]))
        return [(part, offset, length) for _, offset, length in slices]

    def _may_be_in_place(self, part: int) -> bool:
        return self._held is None or self._held[self._main_index(part)] >> part - 1 & 1 == 1

    def _expected_s(self, order: int) -> float:
        link = self._group.links[order]
        if link is None or link.is_failing:
            return inf  # one that fails at once would look quick
        return self._group.paces[order].predicted(self._clock.monotonic()) + (REMOTE_S if link.is_remote else 0.0)

    def _main_index(self, part: int) -> int:
        return next(index for index in range(len(self._orders)) if main_part(self._group.erasure, index) == part)

    async def _read_around(self) -> GetResult:
        codec = self._group.codec
        pending = {
            self._group.spawn(self._ask(order, 0, 0, codec.part_size(self._size))): index
            for index, order in enumerate(self._orders)
        }
        parts: dict[int, Buffer] = {}
        held = [0] * len(self._orders)
        unknown = (1 << len(self._orders)) - 1
        damaged = 0
        reasons: list[str] = []
        while pending:
            done, _ = await asyncio.wait(pending, timeout=DISK_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break  # disks that have not answered by now count as out
            for task in done:
                index = pending.pop(task)
                reply: PartsReply = task.result()
                if reply.status is Status.RACE:
                    return GetResult(Status.RACE, b"", "the group changed")
                for part, data in reply.parts:
                    parts[part] = data
                    held[index] |= 1 << part - 1
                if reply.status is Status.ERROR:
                    reasons.append(reply.reason)
                    damaged |= reply.damaged << index
                else:
                    unknown &= ~(1 << index)
            if len(parts) >= codec.data_parts:
                self._group.note_disorder()
                whole = memoryview(codec.join(self._size, parts))
                return GetResult(Status.OK, whole[self._offset : self._offset + self._length])
        if self._is_absent(held, unknown, damaged):
            return GetResult(Status.NODATA)
        return GetResult(Status.ERROR, b"", "too few disks can tell: " + "; ".join(reasons), unknown == damaged)

    def _is_absent(self, held: list[int], unknown: int, damaged: int) -> bool:
        erasure = self._group.erasure
        failed = sum(1 << order for index, order in enumerate(self._orders) if unknown >> index & 1)
        # In a mirror a single silent disk could hold the blob; it is enough that no put of it can have been acknowledged.
        proven = absence_proven if erasure is Erasure.BLOCK_4_2 else put_excluded
        if fits_fail_model(erasure, failed) and proven(erasure, held, unknown):
            return True
        # What is damaged does not come back by itself: what a put that was never acknowledged left cannot be read any more.
        return unknown == damaged and put_excluded(erasure, held, unknown)


def blob_at_hand(group: Group, blob_id: BlobId) -> GetResult | None:
    """A whole blob, if a VDisk of this process has a part that is all of it, and has that in memory; None if it must be read."""
    if not 0 < blob_id.size <= BLOB_SIZE_MAX or blob_id.part:
        return None
    try:
        prefix = blob_id.pack()[:PREFIX_SIZE]
    except struct.error:  # it is not a blob's: `get` says what is wrong
        return None
    if group.erasure is Erasure.NONE:
        orders: Sequence[int] = (0,)
    elif group.erasure.is_mirror:
        orders = group.subgroup(prefix)
    else:
        return None
    for index, order in enumerate(orders):
        link, part = group.links[order], main_part(group.erasure, index)
        if part and link is not None and not link.is_remote:
            data = link.part_at_hand(group.generation, prefix + (blob_id.size << 4 | part).to_bytes(4, "big"))
            if data is not None:
                return GetResult(Status.OK, data if isinstance(data, bytes) else memoryview(data))
    return None


def _joined(pieces: list[Buffer]) -> bytes | memoryview:
    if len(pieces) == 1:
        only = pieces[0]
        return only if isinstance(only, bytes) else memoryview(only)
    return b"".join(pieces)
