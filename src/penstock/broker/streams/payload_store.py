"""Stores payloads too large for the log, in their own tablet and in parts, so that none is ever whole in memory.

"d" | object id 16 | part 4       the bytes of a part
"u" | object id 16                an upload that no message refers to yet: version 1 | topic id 16 | offset 8
"o" | topic id 16 | offset 8      the message that a payload belongs to: version 1 | object id 16 | parts 4

An upload says from which offset on its message would be, once that is about to be written; -1 before. After a crash the log is
searched from there: with its message the payload is kept, without it is an orphan and goes. A payload goes when its message has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import islice
from random import Random
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from penstock.blob import Buffer
from penstock.broker.streams.errors import PayloadCorruptError, UnknownMessageError
from penstock.broker.system_tablet import SystemTablet
from penstock.core.checksum import crc32c
from penstock.core.errors import InvalidRequestError
from penstock.core.format_version import check_version
from penstock.tablet import Command, DeleteRange, Request, Write

VERSION: Final = 1
PART_BYTES: Final = 4 << 20
PARTS_AT_ONCE: Final = 2  # on their way to the disk, for each upload
PARTS_MAX: Final = 1 << 20
NOT_YET: Final = -1
FORGET_AT_ONCE: Final = 500

_UPLOAD = Struct(">B16sq")
_OWNED = Struct(">B16sI")
_PLACE = Struct(">16sq")
_PART = Struct(">16sI")


class StoredPayload(NamedTuple):
    """A complete payload."""

    object_id: UUID
    size: int
    crc32c: int
    parts: int


class LeftUpload(NamedTuple):
    """An upload that a crash left unfinished."""

    object_id: UUID
    topic_id: UUID
    from_offset: int


class Upload:
    """An upload in progress. Append to it, then `finish`; a payload that no message claims is deleted."""

    def __init__(self, store: PayloadStore, object_id: UUID, topic_id: UUID) -> None:
        self._store = store
        self.object_id = object_id
        self.topic_id = topic_id
        self.size = 0
        self.crc32c = 0
        self.parts = 0
        self._held: list[Buffer] = []
        self._held_bytes = 0
        self._in_flight: set[asyncio.Task[None]] = set()

    async def append(self, data: Buffer) -> None:
        """Append bytes; waits while too many parts are in flight."""
        self.crc32c = crc32c(data, self.crc32c)
        self.size += len(data)
        view = memoryview(data)
        while view:
            taken = view[: PART_BYTES - self._held_bytes]
            self._held.append(taken)
            self._held_bytes += len(taken)
            view = view[len(taken) :]
            if self._held_bytes == PART_BYTES:
                await self._send()

    async def finish(self) -> StoredPayload:
        """Complete the payload; it is durable when this returns."""
        if self._held_bytes:
            await self._send()
        if self._in_flight:
            await asyncio.gather(*self._in_flight)
        return StoredPayload(self.object_id, self.size, self.crc32c, self.parts)

    async def abandon(self) -> None:
        """Cancel the upload and delete what was written of it."""
        for task in self._in_flight:
            task.cancel()
        await asyncio.gather(*self._in_flight, return_exceptions=True)
        try:
            await self._store.remove_upload(self.object_id)
        finally:
            self._store.active.discard(self.object_id)  # what could not be removed now is left to the sweep

    async def _send(self) -> None:
        if self.parts >= PARTS_MAX:
            raise InvalidRequestError(f"a payload has at most {PARTS_MAX * PART_BYTES} bytes")
        parts, self._held, self._held_bytes = tuple(self._held), [], 0
        task = asyncio.create_task(self._store.write_part(self, self.parts, parts))
        self.parts += 1
        self._in_flight.add(task)
        if len(self._in_flight) >= PARTS_AT_ONCE:
            done, self._in_flight = await asyncio.wait(self._in_flight, return_when=asyncio.FIRST_COMPLETED)
            for finished in done:
                finished.result()


class PayloadStore:
    """The payloads of all subjects."""

    def __init__(self, tablet: SystemTablet, random: Random) -> None:
        self._tablet = tablet
        self._random = random
        self.active: set[UUID] = set()  # uploads in progress in this process

    def begin(self, topic_id: UUID) -> Upload:
        """A new upload."""
        object_id = UUID(int=self._random.getrandbits(128), version=4)
        self.active.add(object_id)
        return Upload(self, object_id, topic_id)

    async def write_part(self, upload: Upload, part: int, buffers: tuple[Buffer, ...]) -> None:
        """Store one part; the first one also records the upload."""
        commands: list[Command] = [Write(_part_key(upload.object_id, part), buffers)]
        if part == 0:
            commands.append(_upload_write(upload.object_id, upload.topic_id, NOT_YET))
        await self._tablet.execute(Request(tuple(commands)))

    async def expect_message(self, upload: Upload, from_offset: int) -> None:
        """Record that a message with the payload will be written at this offset or later."""
        await self._tablet.execute(Request((_upload_write(upload.object_id, upload.topic_id, from_offset),)))

    async def claim(self, object_id: UUID, topic_id: UUID, offset: int) -> None:
        """Assign the payload to its stored message; they are deleted together."""
        parts = sum(1 for _ in self._tablet.keys(*_part_range(object_id)))
        owned = Write(_place_key(topic_id, offset), _OWNED.pack(VERSION, object_id.bytes, parts))
        upload = b"u" + object_id.bytes
        await self._tablet.execute(Request((owned, DeleteRange(upload, upload + b"\0"))))
        self.active.discard(object_id)

    def is_of(self, object_id: UUID, topic_id: UUID, offset: int) -> bool:
        """Whether a payload belongs to a message: it has claimed it, or is about to."""
        owner = self._tablet.head(_place_key(topic_id, offset))
        if owner is not None:
            return _object_of(owner) == object_id
        raw = self._tablet.head(b"u" + object_id.bytes)
        if raw is None:
            return False
        _, upload_topic, from_offset = _UPLOAD.unpack(raw)
        return bool(upload_topic == topic_id.bytes and NOT_YET < from_offset <= offset)

    async def remove_upload(self, object_id: UUID) -> None:
        """Delete an upload without a message."""
        upload = b"u" + object_id.bytes
        begin, end = _part_range(object_id)
        await self._tablet.execute(Request((DeleteRange(begin, end), DeleteRange(upload, upload + b"\0")), makes_room=True))
        self.active.discard(object_id)

    def left_uploads(self) -> list[LeftUpload]:
        """Returns uploads that an earlier process left unfinished."""
        uploads: list[LeftUpload] = []
        for key in self._tablet.keys(b"u", b"v"):
            object_id = UUID(bytes=key[1:])
            if object_id in self.active:
                continue
            raw = self._tablet.head(key) or b""
            check_version(raw[0] if raw else 0, VERSION, "an upload")
            _, topic_id, from_offset = _UPLOAD.unpack(raw)
            uploads.append(LeftUpload(object_id, UUID(bytes=topic_id), from_offset))
        return uploads

    async def remove_strays(self) -> int:
        """Parts of neither a message nor an upload go; only a crash within the first writes of one leaves them. Of how many
        payloads there were any."""
        removed = 0
        owned = {_object_of(self._tablet.head(key) or b"") for key in self._tablet.keys(b"o", b"p")}
        owned |= {UUID(bytes=key[1:]) for key in self._tablet.keys(b"u", b"v")} | self.active
        begin = b"d"
        while (key := next(iter(self._tablet.keys(begin, b"e")), None)) is not None:
            object_id = UUID(bytes=key[1:17])
            begin = _part_range(object_id)[1]
            if object_id not in owned:
                await self.remove_upload(object_id)
                removed += 1
        return removed

    def topics(self) -> list[UUID]:
        """All topics with payloads."""
        topic_ids: list[UUID] = []
        begin = b"o"
        while (key := next(iter(self._tablet.keys(begin, b"p")), None)) is not None:
            topic_ids.append(UUID(bytes=key[1:17]))
            begin = key[:17] + b"\xff" * 9
        return topic_ids

    async def forget_before(self, topic_id: UUID, offset: int | None) -> int:
        """Delete payloads whose messages are gone: those before an offset, or all of a topic. Returns how many."""
        begin = b"o" + topic_id.bytes
        end = begin + b"\xff" * 9 if offset is None else _place_key(topic_id, offset)
        gone = 0
        keys = list(self._tablet.keys(begin, end))
        for at in range(0, len(keys), FORGET_AT_ONCE):
            commands: list[Command] = []
            for key in keys[at : at + FORGET_AT_ONCE]:
                object_id = _object_of(self._tablet.head(key) or b"")
                commands += (DeleteRange(*_part_range(object_id)), DeleteRange(key, key + b"\0"))
            await self._tablet.execute(Request(tuple(commands), makes_room=True))
            gone += len(commands) // 2
        return gone

    def bytes_of(self, topic_id: UUID, payloads_max: int) -> int | None:
        """The bytes of all payloads of a topic; None if there are more than `payloads_max`, which takes too long to add up."""
        begin = b"o" + topic_id.bytes
        keys = list(islice(self._tablet.keys(begin, begin + b"\xff" * 9), payloads_max + 1))
        if len(keys) > payloads_max:
            return None
        return sum(
            self._tablet.size(part)
            for key in keys
            for part in self._tablet.keys(*_part_range(_object_of(self._tablet.head(key) or b"")))
        )

    def sizes(self) -> tuple[int, int]:
        """How many payloads belong to messages, and how many uploads do not yet."""
        return sum(1 for _ in self._tablet.keys(b"o", b"p")), sum(1 for _ in self._tablet.keys(b"u", b"v"))

    async def read(self, object_id: UUID, size: int, begin: int = 0, end: int | None = None) -> AsyncIterator[memoryview]:
        """The bytes begin <= at < end of a payload, part by part. UnknownMessageError if it has gone meanwhile."""
        end = size if end is None else min(end, size)
        at = begin
        while at < end:
            part, within = divmod(at, PART_BYTES)
            length = min(PART_BYTES - within, end - at)
            data = await self._tablet.latest.read(_part_key(object_id, part), within, length)
            if data is None:
                raise UnknownMessageError(f"payload {object_id.hex} is gone: the time of its message is over")
            if len(data) != length:
                raise PayloadCorruptError(
                    f"part {part} of payload {object_id.hex} has {len(data)} bytes where {length} were stored"
                )
            yield memoryview(data)
            at += length


def _upload_write(object_id: UUID, topic_id: UUID, from_offset: int) -> Write:
    return Write(b"u" + object_id.bytes, _UPLOAD.pack(VERSION, topic_id.bytes, from_offset))


def _part_key(object_id: UUID, part: int) -> bytes:
    return b"d" + _PART.pack(object_id.bytes, part)


def _part_range(object_id: UUID) -> tuple[bytes, bytes]:
    return b"d" + object_id.bytes, b"d" + object_id.bytes + b"\xff" * 5


def _place_key(topic_id: UUID, offset: int) -> bytes:
    return b"o" + _PLACE.pack(topic_id.bytes, offset)


def _object_of(raw: bytes) -> UUID:
    check_version(raw[0] if raw else 0, VERSION, "the owner of a payload")
    return UUID(bytes=_OWNED.unpack(raw)[1])
