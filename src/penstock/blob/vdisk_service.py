"""Serves the VDisks of this node to other nodes over the interconnect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.blob.link import DiskLink
from penstock.blob.vdisk_calls import (
    REQUESTS,
    Method,
    pack,
    pack_parts,
    pack_pull,
    unpack,
    unpack_put,
    unpack_put_all,
    unpack_put_summed,
)
from penstock.blob.vector import contiguous
from penstock.core.errors import UnavailableError
from penstock.interconnect import Handler, Parts, ServedCall, Service

FOREGROUND: Final = 0
BACKGROUND: Final = 1


def destination_of(group_id: int, order: int, traffic: int = FOREGROUND) -> int:
    """The number by which a VDisk is called. Sync and replication have another one, and so a window of their own: a disk
    that is being refilled still takes puts. Group 0, that of a single node, counts as one more than the highest: low numbers are
    calls to the node itself."""
    return (group_id or 1 << 32) << 16 | order << 1 | traffic


class VDiskService:
    """The handlers of one VDisk. They are not cancelled: a disk ends what it has begun, whether or not a caller waits."""

    def __init__(self, service: Service, group_id: int, order: int, find: Callable[[], DiskLink | None]) -> None:
        """`find` gives the VDisk if it is open on this node; it may be closed and opened again while it is served."""
        self._service = service
        self._name = f"VDisk {order} of group {group_id:08x}"
        self._find = find
        self._destinations = [destination_of(group_id, order, traffic) for traffic in (FOREGROUND, BACKGROUND)]
        handlers: dict[int, Handler] = {
            Method.PUT: self._put,
            Method.PUT_SUMMED: self._put_summed,
            Method.PUT_ALL: self._put_all,
            Method.PUT_REPLICA: self._put_replica,
            Method.GET: self._get,
            Method.COLLECT: self._collect,
            Method.LISTING: self._listing,
            Method.CHANNELS: self._channels,
            Method.PULL: self._pull,
            Method.DROP: self._drop,
            Method.CONFIGURE: self._configure,
            Method.FORM: self._form,
            Method.NOTE_DISORDER: self._note_disorder,
            Method.BLOCKED_GENERATIONS: self._blocked_generations,
            Method.BLOCK_ALL: self._block_all,
            Method.LOOK_UP_ALL: self._look_up_all,
        }
        for destination in self._destinations:
            service.register(destination, handlers, cancels=False)

    def close(self) -> None:
        """Refuse new calls; those in flight go on."""
        for destination in self._destinations:
            self._service.unregister(destination)

    @property
    def _vdisk(self) -> DiskLink:
        vdisk = self._find()
        if vdisk is None:
            raise UnavailableError(f"{self._name} is not open on this node")
        return vdisk

    async def _put(self, call: ServedCall) -> Parts:
        generation, from_reserve, blob_id, body = unpack_put(call.body or b"")
        return (pack(await self._vdisk.put(generation, blob_id, body, from_reserve=from_reserve)),)

    async def _put_summed(self, call: ServedCall) -> Parts:
        generation, from_reserve, blob_id, body = unpack_put_summed(call.body or b"")
        return (pack(await self._vdisk.put(generation, blob_id, body, from_reserve=from_reserve)),)

    async def _put_all(self, call: ServedCall) -> Parts:
        generation, from_reserve, parts = unpack_put_all(call.body or b"")
        return (pack(await self._vdisk.put_all(generation, parts, from_reserve=from_reserve)),)

    async def _put_replica(self, call: ServedCall) -> Parts:
        generation, _, blob_id, body = unpack_put(call.body or b"")
        return (pack(await self._vdisk.put_replica(generation, blob_id, contiguous(body))),)

    async def _get(self, call: ServedCall) -> Parts:
        generation, blob_id, offset, length = unpack(REQUESTS[Method.GET], call.body or b"")
        return pack_parts(await self._vdisk.get(generation, blob_id, offset, length))

    async def _block_all(self, call: ServedCall) -> Parts:
        generation, blocks = unpack(REQUESTS[Method.BLOCK_ALL], call.body or b"")
        vdisk = self._vdisk
        # All are logged before the first of them waits: they become durable together.
        return (pack(await asyncio.gather(*(vdisk.block(generation, item, history) for item, history in blocks))),)

    async def _collect(self, call: ServedCall) -> Parts:
        generation, request = unpack(REQUESTS[Method.COLLECT], call.body or b"")
        return (pack(await self._vdisk.collect(generation, request)),)

    async def _look_up_all(self, call: ServedCall) -> Parts:
        generation, tablets = unpack(REQUESTS[Method.LOOK_UP_ALL], call.body or b"")
        vdisk = self._vdisk
        return (pack([await vdisk.look_up(generation, tablet) for tablet in tablets]),)

    async def _blocked_generations(self, call: ServedCall) -> Parts:
        generation, tablets = unpack(REQUESTS[Method.BLOCKED_GENERATIONS], call.body or b"")
        return (pack(await self._vdisk.blocked_generations(generation, tablets)),)

    async def _listing(self, call: ServedCall) -> Parts:
        generation, channel_key, begin, end, reverse, limit = unpack(REQUESTS[Method.LISTING], call.body or b"")
        return (pack(await self._vdisk.listing(generation, channel_key, begin, end, reverse=reverse, limit=limit)),)

    async def _channels(self, call: ServedCall) -> Parts:
        (generation,) = unpack(REQUESTS[Method.CHANNELS], call.body or b"")
        return (pack(await self._vdisk.channels(generation)),)

    async def _pull(self, call: ServedCall) -> Parts:
        generation, order, incarnation, position, mark = unpack(REQUESTS[Method.PULL], call.body or b"")
        return pack_pull(await self._vdisk.pull(generation, order, incarnation, position, mark))

    async def _drop(self, call: ServedCall) -> Parts:
        generation, blob_id, place = unpack(REQUESTS[Method.DROP], call.body or b"")
        return (pack(await self._vdisk.drop(generation, blob_id, place)),)

    async def _configure(self, call: ServedCall) -> Parts:
        (offered,) = unpack(REQUESTS[Method.CONFIGURE], call.body or b"")
        return (pack(await self._vdisk.configure(offered)),)

    async def _form(self, call: ServedCall) -> Parts:
        (generation,) = unpack(REQUESTS[Method.FORM], call.body or b"")
        return (pack(await self._vdisk.form(generation)),)

    async def _note_disorder(self, call: ServedCall) -> Parts:
        (generation,) = unpack(REQUESTS[Method.NOTE_DISORDER], call.body or b"")
        return (pack(await self._vdisk.note_disorder(generation)),)
