"""The calls of a VDisk on another node, over the interconnect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from penstock.blob.blob_id import PREFIX_SIZE
from penstock.blob.bounded_link import BoundedLink
from penstock.blob.call_batch import CallBatch
from penstock.blob.configuration import Configuration, ConfigurationReply
from penstock.blob.disk import Buffer, FilePiece
from penstock.blob.link import BlocksReply, ChannelsReply, CollectRequest, DiskReply, Page, PartsReply, PullReply, TabletReply
from penstock.blob.meta import BlockItem, HistoryItem
from penstock.blob.sisters import SisterMark
from penstock.blob.vdisk_calls import (
    BLOCKS_REPLY,
    CHANNELS_REPLY,
    CONFIGURATION_REPLY,
    DISK_REPLIES,
    DISK_REPLY,
    PAGE,
    TABLET_REPLIES,
    Method,
    pack,
    pack_put,
    pack_put_all,
    pack_put_summed,
    unpack,
    unpack_parts,
    unpack_pull,
)
from penstock.blob.vdisk_service import BACKGROUND, FOREGROUND, destination_of
from penstock.blob.vector import Content, SummedBuffer
from penstock.core.errors import CorruptionError
from penstock.interconnect import CallStatus, Link, Parts, Reply

CALL_TIMEOUT_S: Final = 10.0
LISTED_BYTES: Final = 64  # of a blob in a page, at most
METADATA_BYTES: Final = 8 << 20  # of the metadata of a VDisk, usually
METADATA_BYTES_MAX: Final = 64 << 20
BATCHED_BYTES_MAX: Final = 4 << 10  # of a part that waits for others to go with
BLOCK_BYTES: Final = 4 << 10  # of a reply about one tablet, its channel history included
_OK: Final = CallStatus.OK  # to look it up in the enumeration costs every call a third of a microsecond
PARTS_OF_ONE_BLOB: Final = 3  # how many times its size a blob may take on one VDisk

Answer = TypeVar("Answer")


def link_to_vdisk(link: Link, group_id: int, order: int, *, timeout_s: float = CALL_TIMEOUT_S) -> BoundedLink:
    """A VDisk on the node that a link leads to, as the rest of a group may rely on it."""
    carrier = InterconnectCarrier(link, group_id, order, timeout_s=timeout_s)
    return BoundedLink(carrier, f"VDisk {order} of group {group_id:08x} on node {link.node_id}", timeout_s=None)


class VDiskUnreachableError(ConnectionError):
    """A call has no answer: it may have been carried out or not."""


class InterconnectCarrier:
    """Carries calls to one VDisk. Each ends in time by itself; VDiskUnreachableError if there is no answer."""

    is_remote = True
    is_failing = False  # the link that bounds the calls knows

    def __init__(self, link: Link, group_id: int, order: int, *, timeout_s: float) -> None:
        self._link = link
        self._destinations = tuple(destination_of(group_id, order, traffic) for traffic in (FOREGROUND, BACKGROUND))
        self._timeout_s = timeout_s
        self._blocks = CallBatch(self._block_all)
        self._look_ups = CallBatch(self._look_up_all)
        self._reserve_puts = CallBatch(self._put_all_from_reserve)

    async def put(self, generation: int, blob_id: bytes, body: Content, *, from_reserve: bool = False) -> DiskReply:
        """See DiskLink. What is written from the reserve is never urgent, and little of it is large: the first entries of
        tablets that start."""
        if from_reserve and len(body) <= BATCHED_BYTES_MAX:
            return await self._reserve_puts.ask(generation, (blob_id, body))
        if isinstance(body, SummedBuffer):
            request = pack_put_summed(generation, blob_id, body, from_reserve=from_reserve)
            reply = await self._call(Method.PUT_SUMMED, request, FOREGROUND, 0, summed=True)
        else:
            request = pack_put(generation, blob_id, body, from_reserve=from_reserve)
            reply = await self._call(Method.PUT, request, FOREGROUND, 0)
        return _decoded(reply, partial(unpack, DISK_REPLY))

    async def put_all(
        self, generation: int, parts: Sequence[tuple[bytes, Content]], *, from_reserve: bool = False
    ) -> list[DiskReply]:
        """See DiskLink."""
        request = pack_put_all(generation, parts, from_reserve=from_reserve)
        return _one_each(await self._ask(Method.PUT_ALL, request, partial(unpack, DISK_REPLIES)), parts)

    async def put_replica(self, generation: int, blob_id: bytes, body: Buffer) -> DiskReply:
        """See DiskLink."""
        request = pack_put(generation, blob_id, body, from_reserve=False)
        return await self._ask(Method.PUT_REPLICA, request, partial(unpack, DISK_REPLY), BACKGROUND)

    async def get(self, generation: int, blob_id: bytes, offset: int, length: int) -> PartsReply:
        """See DiskLink."""
        request = (pack((generation, blob_id, offset, length)),)
        reply_bytes = length + 1000
        if blob_id[-1] & 0xF == 0:  # all parts that are there, whole
            reply_bytes += PARTS_OF_ONE_BLOB * (int.from_bytes(blob_id[PREFIX_SIZE:], "big") >> 4)
        return _decoded(await self._call(Method.GET, request, FOREGROUND, reply_bytes), unpack_parts)

    def piece(self, generation: int, blob_id: bytes, offset: int, length: int) -> FilePiece | None:
        """See DiskLink. The files of another node cannot be sent from here."""
        return None

    def part_at_hand(self, generation: int, blob_id: bytes) -> Buffer | None:
        """See DiskLink. Another node is always waited for."""
        return None

    async def block(self, generation: int, item: BlockItem, history: HistoryItem | None = None) -> DiskReply:
        """See DiskLink."""
        return await self._blocks.ask(generation, (item, history))

    async def collect(self, generation: int, request: CollectRequest) -> DiskReply:
        """See DiskLink."""
        return await self._ask(Method.COLLECT, (pack((generation, request)),), partial(unpack, DISK_REPLY))

    async def look_up(self, generation: int, tablet: bytes) -> TabletReply:
        """See DiskLink."""
        return await self._look_ups.ask(generation, tablet)

    async def blocked_generations(self, generation: int, tablets: bytes) -> BlocksReply:
        """See DiskLink."""
        request = (pack((generation, tablets)),)
        decode = partial(unpack, BLOCKS_REPLY)
        return await self._ask(Method.BLOCKED_GENERATIONS, request, decode, reply_bytes=len(tablets) + 100)

    async def listing(
        self, generation: int, channel_key: bytes, begin: bytes, end: bytes | None, *, reverse: bool, limit: int
    ) -> Page:
        """See DiskLink."""
        request = (pack((generation, channel_key, begin, end, reverse, limit)),)
        return await self._ask(Method.LISTING, request, partial(unpack, PAGE), reply_bytes=limit * LISTED_BYTES)

    async def channels(self, generation: int) -> ChannelsReply:
        """See DiskLink."""
        return await self._ask(
            Method.CHANNELS, (pack((generation,)),), partial(unpack, CHANNELS_REPLY), BACKGROUND, reply_bytes=METADATA_BYTES
        )

    async def pull(
        self, generation: int, order: int, incarnation: int, position: int, mark: SisterMark | None = None
    ) -> PullReply:
        """See DiskLink."""
        request = (pack((generation, order, incarnation, position, mark)),)
        return await self._ask(Method.PULL, request, unpack_pull, BACKGROUND, reply_bytes=METADATA_BYTES)

    async def drop(self, generation: int, blob_id: bytes, place: tuple[int, int]) -> DiskReply:
        """See DiskLink."""
        return await self._ask(Method.DROP, (pack((generation, blob_id, place)),), partial(unpack, DISK_REPLY))

    async def configure(self, offered: Configuration) -> ConfigurationReply:
        """See DiskLink."""
        return await self._ask(Method.CONFIGURE, (pack((offered,)),), partial(unpack, CONFIGURATION_REPLY), BACKGROUND)

    async def form(self, generation: int) -> DiskReply:
        """See DiskLink."""
        return await self._ask(Method.FORM, (pack((generation,)),), partial(unpack, DISK_REPLY), BACKGROUND)

    async def note_disorder(self, generation: int) -> DiskReply:
        """See DiskLink."""
        return await self._ask(Method.NOTE_DISORDER, (pack((generation,)),), partial(unpack, DISK_REPLY), BACKGROUND)

    async def _block_all(self, generation: int, blocks: Sequence[tuple[BlockItem, HistoryItem | None]]) -> list[DiskReply]:
        request = (pack((generation, blocks)),)
        decode = partial(unpack, DISK_REPLIES)
        return _one_each(await self._ask(Method.BLOCK_ALL, request, decode, reply_bytes=BLOCK_BYTES * len(blocks)), blocks)

    async def _look_up_all(self, generation: int, tablets: Sequence[bytes]) -> list[TabletReply]:
        request = (pack((generation, tablets)),)
        decode = partial(unpack, TABLET_REPLIES)
        return _one_each(await self._ask(Method.LOOK_UP_ALL, request, decode, reply_bytes=BLOCK_BYTES * len(tablets)), tablets)

    async def _put_all_from_reserve(self, generation: int, parts: Sequence[tuple[bytes, Content]]) -> list[DiskReply]:
        return await self.put_all(generation, parts, from_reserve=True)

    async def _ask(
        self,
        method: Method,
        request: Parts,
        decode: Callable[[Buffer], Answer],
        traffic: int = FOREGROUND,
        *,
        reply_bytes: int = 0,
    ) -> Answer:
        """Sends a request and decodes the reply to it."""
        reply = await self._call(method, request, traffic, reply_bytes)
        if reply.status is CallStatus.TOO_LARGE and reply_bytes == METADATA_BYTES:
            # How much metadata a VDisk has is not known before; room for the most is taken only if it is needed.
            reply = await self._call(method, request, traffic, METADATA_BYTES_MAX)
        return _decoded(reply, decode)

    def _call(self, method: Method, request: Parts, traffic: int, reply_bytes: int, *, summed: bool = False) -> Awaitable[Reply]:
        destination = self._destinations[traffic]
        return self._link.call(method, destination, request, timeout_s=self._timeout_s, reply_bytes=reply_bytes, summed=summed)


def _one_each(replies: list[Answer], requests: Sequence[object]) -> list[Answer]:
    if len(replies) != len(requests):
        raise VDiskUnreachableError(f"{len(replies)} replies to {len(requests)} requests")
    return replies


def _decoded(reply: Reply, decode: Callable[[Buffer], Answer]) -> Answer:
    if reply.status is not _OK:
        raise VDiskUnreachableError(f"{reply.status.name.lower()}: {reply.reason}")
    try:
        return decode(reply.body)
    except CorruptionError as error:
        raise VDiskUnreachableError(str(error)) from error
