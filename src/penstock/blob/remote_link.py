"""The calls of a VDisk on another node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from penstock.blob.blob_id import PREFIX_SIZE
from penstock.blob.disk import Buffer, FilePiece
from penstock.blob.link import ChannelsReply, CollectRequest, DiskReply, Page, PartsReply, PullReply
from penstock.blob.meta import BlockItem
from penstock.blob.sisters import SisterMark
from penstock.blob.status import Status
from penstock.blob.vdisk_calls import (
    BLOCKED_REPLY,
    CHANNELS_REPLY,
    DISK_REPLIES,
    DISK_REPLY,
    PAGE,
    Method,
    pack,
    pack_put,
    pack_put_all,
    unpack,
    unpack_parts,
    unpack_pull,
)
from penstock.blob.vdisk_service import BACKGROUND, FOREGROUND, destination_of
from penstock.blob.vector import Content
from penstock.core.errors import CorruptionError
from penstock.interconnect import CallStatus, Link, Parts, Reply

CALL_TIMEOUT_S: Final = 10.0
LISTED_BYTES: Final = 64  # of a blob in a page, at most
METADATA_BYTES: Final = 8 << 20  # of the metadata of a VDisk, usually
METADATA_BYTES_MAX: Final = 64 << 20
PARTS_OF_ONE_BLOB: Final = 3  # how many times its size a blob may take on one VDisk

Answer = TypeVar("Answer")


class RemoteLink:
    """A VDisk on another node. Each call ends in time and raises nothing: without an answer of the VDisk it is an ERROR, after
    which the call may have been carried out or not."""

    is_remote = True

    def __init__(self, link: Link, group_id: int, order: int, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._link = link
        self._name = f"VDisk {order} of group {group_id:x}"
        self._destinations = tuple(destination_of(group_id, order, traffic) for traffic in (FOREGROUND, BACKGROUND))
        self._timeout_s = timeout_s
        self.failures = 0

    async def put(self, generation: int, blob_id: bytes, body: Content, *, from_reserve: bool = False) -> DiskReply:
        """See DiskLink."""
        request = pack_put(generation, blob_id, body, from_reserve=from_reserve)
        return await self._ask(Method.PUT, request, _disk_reply, _no_reply)

    async def put_all(
        self, generation: int, parts: Sequence[tuple[bytes, Content]], *, from_reserve: bool = False
    ) -> list[DiskReply]:
        """See DiskLink."""
        request = pack_put_all(generation, parts, from_reserve=from_reserve)

        def replies(raw: Buffer) -> list[DiskReply]:
            found = unpack(DISK_REPLIES, raw)
            if len(found) != len(parts):
                raise CorruptionError(f"{len(found)} replies to {len(parts)} parts")
            return found

        return await self._ask(Method.PUT_ALL, request, replies, lambda reason: [_no_reply(reason)] * len(parts))

    async def put_replica(self, generation: int, blob_id: bytes, body: Buffer) -> DiskReply:
        """See DiskLink."""
        request = pack_put(generation, blob_id, body, from_reserve=False)
        return await self._ask(Method.PUT_REPLICA, request, _disk_reply, _no_reply, BACKGROUND)

    async def get(self, generation: int, blob_id: bytes, offset: int, length: int) -> PartsReply:
        """See DiskLink."""
        request = (pack((generation, blob_id, offset, length)),)
        is_whole = blob_id[-1] & 0xF == 0
        size = int.from_bytes(blob_id[PREFIX_SIZE:], "big") >> 4
        reply_bytes = PARTS_OF_ONE_BLOB * size if is_whole else length
        return await self._ask(
            Method.GET, request, unpack_parts, lambda reason: PartsReply(Status.ERROR, (), reason), reply_bytes=reply_bytes + 1000
        )

    def piece(self, generation: int, blob_id: bytes, offset: int, length: int) -> FilePiece | None:
        """See DiskLink. The files of another node cannot be sent from here."""
        return None

    async def block(self, generation: int, item: BlockItem) -> DiskReply:
        """See DiskLink."""
        return await self._ask(Method.BLOCK, (pack((generation, item)),), _disk_reply, _no_reply)

    async def collect(self, generation: int, request: CollectRequest) -> DiskReply:
        """See DiskLink."""
        return await self._ask(Method.COLLECT, (pack((generation, request)),), _disk_reply, _no_reply)

    async def blocked_generation(self, generation: int, tablet: bytes) -> tuple[Status, int]:
        """See DiskLink."""
        request = (pack((generation, tablet)),)
        return await self._ask(
            Method.BLOCKED_GENERATION, request, lambda raw: unpack(BLOCKED_REPLY, raw), lambda _: (Status.ERROR, -1)
        )

    async def listing(
        self, generation: int, channel_key: bytes, begin: bytes, end: bytes | None, *, reverse: bool, limit: int
    ) -> Page:
        """See DiskLink."""
        return await self._ask(
            Method.LISTING,
            (pack((generation, channel_key, begin, end, reverse, limit)),),
            lambda raw: unpack(PAGE, raw),
            lambda _: Page(Status.ERROR),
            reply_bytes=limit * LISTED_BYTES,
        )

    async def channels(self, generation: int) -> ChannelsReply:
        """See DiskLink."""
        return await self._ask(
            Method.CHANNELS,
            (pack((generation,)),),
            lambda raw: unpack(CHANNELS_REPLY, raw),
            lambda _: ChannelsReply(Status.ERROR),
            BACKGROUND,
            reply_bytes=METADATA_BYTES,
        )

    async def pull(
        self, generation: int, order: int, incarnation: int, position: int, mark: SisterMark | None = None
    ) -> PullReply:
        """See DiskLink."""
        request = (pack((generation, order, incarnation, position, mark)),)
        return await self._ask(
            Method.PULL, request, unpack_pull, lambda _: PullReply(Status.ERROR), BACKGROUND, reply_bytes=METADATA_BYTES
        )

    async def drop(self, blob_id: bytes) -> DiskReply:
        """See DiskLink."""
        return await self._ask(Method.DROP, (pack((blob_id,)),), _disk_reply, _no_reply)

    async def _ask(
        self,
        method: Method,
        request: Parts,
        decode: Callable[[Buffer], Answer],
        failure: Callable[[str], Answer],
        traffic: int = FOREGROUND,
        *,
        reply_bytes: int = 0,
    ) -> Answer:
        """Sends a request; `failure` makes an answer of the reason for which there is none."""
        reply = await self._call(method, request, traffic, reply_bytes)
        if reply.status is CallStatus.TOO_LARGE and traffic == BACKGROUND:
            # How much metadata a VDisk has is not known before; room for the most is taken only if it is needed.
            reply = await self._call(method, request, traffic, METADATA_BYTES_MAX)
        trouble = f"it gave no answer ({reply.status.name.lower()}): {reply.reason}"
        if reply.status is CallStatus.OK:
            try:
                return decode(reply.body)
            except CorruptionError as error:
                trouble = str(error)
        self.failures += 1
        return failure(f"{self._name} on node {self._link.node_id}: {trouble}")

    def _call(self, method: Method, request: Parts, traffic: int, reply_bytes: int) -> Awaitable[Reply]:
        destination = self._destinations[traffic]
        return self._link.call(method, destination, request, timeout_s=self._timeout_s, reply_bytes=reply_bytes)


def _disk_reply(raw: Buffer) -> DiskReply:
    return unpack(DISK_REPLY, raw)


def _no_reply(reason: str) -> DiskReply:
    return DiskReply(Status.ERROR, reason)
