"""A link to a VDisk on another node, as the rest of the group may rely on it: a call ends in time, and a broken link is a status.

What carries the calls may raise OSError (ConnectionError, TimeoutError) or say nothing. A call that failed may have been carried
out or not, so the VDisk may lack what others hold: as soon as the link works again, it is told to compare itself with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from penstock.blob.configuration import Configuration, ConfigurationReply
from penstock.blob.disk import Buffer, FilePiece
from penstock.blob.link import (
    BlocksReply,
    ChannelsReply,
    CollectRequest,
    DiskLink,
    DiskReply,
    Page,
    PartsReply,
    PullReply,
    TabletReply,
)
from penstock.blob.meta import BlockItem, HistoryItem
from penstock.blob.sisters import SisterMark
from penstock.blob.status import Status
from penstock.blob.vector import Content

CALL_TIMEOUT_S = 10.0

Answer = TypeVar("Answer")


class BoundedLink:
    """The calls of a VDisk on another node, each with a deadline. `name` is for people: which VDisk, and where. Without a timeout
    the carrier ends each call in time by itself."""

    is_remote = True

    def __init__(self, carrier: DiskLink, name: str, *, timeout_s: float | None = CALL_TIMEOUT_S) -> None:
        self._carrier = carrier
        self._name = name
        self._timeout_s = timeout_s
        self._owes_notice = False
        self._notice: asyncio.Task[None] | None = None
        self.failures = 0

    @property
    def is_failing(self) -> bool:
        """Whether the last call failed."""
        return self._owes_notice

    async def put(self, generation: int, blob_id: bytes, body: Content, *, from_reserve: bool = False) -> DiskReply:
        """See DiskLink."""
        return await self._call(generation, self._carrier.put(generation, blob_id, body, from_reserve=from_reserve), _no_reply)

    async def put_all(
        self, generation: int, parts: Sequence[tuple[bytes, Content]], *, from_reserve: bool = False
    ) -> list[DiskReply]:
        """See DiskLink."""
        work = self._carrier.put_all(generation, parts, from_reserve=from_reserve)
        return await self._call(generation, work, lambda reason: [_no_reply(reason)] * len(parts))

    async def put_replica(self, generation: int, blob_id: bytes, body: Buffer) -> DiskReply:
        """See DiskLink."""
        return await self._call(generation, self._carrier.put_replica(generation, blob_id, body), _no_reply)

    async def get(self, generation: int, blob_id: bytes, offset: int, length: int) -> PartsReply:
        """See DiskLink."""
        work = self._carrier.get(generation, blob_id, offset, length)
        return await self._call(generation, work, _no_parts)

    def piece(self, generation: int, blob_id: bytes, offset: int, length: int) -> FilePiece | None:
        """See DiskLink. The files of another node cannot be sent from here."""
        return None

    def part_at_hand(self, generation: int, blob_id: bytes) -> Buffer | None:
        """See DiskLink. Another node is always waited for."""
        return None

    async def block(self, generation: int, item: BlockItem, history: HistoryItem | None = None) -> DiskReply:
        """See DiskLink."""
        return await self._call(generation, self._carrier.block(generation, item, history), _no_reply)

    async def collect(self, generation: int, request: CollectRequest) -> DiskReply:
        """See DiskLink."""
        return await self._call(generation, self._carrier.collect(generation, request), _no_reply)

    async def look_up(self, generation: int, tablet: bytes) -> TabletReply:
        """See DiskLink."""
        return await self._call(generation, self._carrier.look_up(generation, tablet), lambda _: TabletReply(Status.ERROR))

    async def blocked_generations(self, generation: int, tablets: bytes) -> BlocksReply:
        """See DiskLink."""
        work = self._carrier.blocked_generations(generation, tablets)
        return await self._call(generation, work, lambda _: BlocksReply(Status.ERROR))

    async def listing(
        self, generation: int, channel_key: bytes, begin: bytes, end: bytes | None, *, reverse: bool, limit: int
    ) -> Page:
        """See DiskLink."""
        work = self._carrier.listing(generation, channel_key, begin, end, reverse=reverse, limit=limit)
        return await self._call(generation, work, lambda _: Page(Status.ERROR))

    async def channels(self, generation: int) -> ChannelsReply:
        """See DiskLink."""
        return await self._call(generation, self._carrier.channels(generation), lambda _: ChannelsReply(Status.ERROR))

    async def pull(
        self, generation: int, order: int, incarnation: int, position: int, mark: SisterMark | None = None
    ) -> PullReply:
        """See DiskLink."""
        work = self._carrier.pull(generation, order, incarnation, position, mark)
        return await self._call(generation, work, lambda _: PullReply(Status.ERROR))

    async def drop(self, generation: int, blob_id: bytes, place: tuple[int, int]) -> DiskReply:
        """See DiskLink."""
        return await self._call(generation, self._carrier.drop(generation, blob_id, place), _no_reply)

    async def configure(self, offered: Configuration) -> ConfigurationReply:
        """See DiskLink."""
        work = self._carrier.configure(offered)
        return await self._call(offered.generation, work, partial(ConfigurationReply, Status.ERROR, None))

    async def form(self, generation: int) -> DiskReply:
        """See DiskLink."""
        return await self._call(generation, self._carrier.form(generation), _no_reply)

    async def note_disorder(self, generation: int) -> DiskReply:
        """See DiskLink."""
        return await self._call(generation, self._carrier.note_disorder(generation), _no_reply)

    async def _call(self, generation: int, work: Awaitable[Answer], failure: Callable[[str], Answer]) -> Answer:
        try:
            if self._timeout_s is None:
                answer = await work
            else:
                async with asyncio.timeout(self._timeout_s):
                    answer = await work
        except TimeoutError:
            self._fail()
            return failure(f"{self._name} has not answered in time")
        except OSError as error:
            self._fail()
            return failure(f"{self._name} cannot be reached: {error}")
        if self._owes_notice and self._notice is None:
            self._notice = asyncio.get_running_loop().create_task(self._send_notice(generation))
        return answer

    def _fail(self) -> None:
        self.failures += 1
        self._owes_notice = True

    async def _send_notice(self, generation: int) -> None:
        try:
            self._owes_notice = False
            reply = await self.note_disorder(generation)
            if reply.status is not Status.OK:
                self._owes_notice = True
        finally:
            self._notice = None


def _no_reply(reason: str) -> DiskReply:
    return DiskReply(Status.ERROR, reason)


def _no_parts(reason: str) -> PartsReply:
    return PartsReply(Status.ERROR, (), reason)
