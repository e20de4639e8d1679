"""Batches of other gateways as Kafka clients get them: the same records, without the internal headers of those gateways (`ydb.*`,
`penstock.*`).

Batches of Kafka producers are sent as they are, and partitions that hold no others are sent straight from files. A topic with
`penstock.headers.visible` shows all headers, and is always sent from files.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

import numpy as np

from penstock.blob import Buffer
from penstock.core.errors import CorruptionError
from penstock.core.record_compression import compress_like
from penstock.core.record_format import ATTRIBUTES, CODEC_MASK, HEADER_SIZE, ORIGIN_BYTE, ORIGIN_MASK, seal_batch
from penstock.kernels.header_strip import strip_headers
from penstock.queue import Partition, ReadResult, joined, scan_batch, split_batches

IN_PLACE_BYTES_MAX: Final = 64 << 10  # more than this is worked on beside the event loop


class ReadRequest(NamedTuple):
    """How a client wants to read a partition."""

    bytes_max: int
    files: bool
    at_least_one: bool
    shows_all: bool  # headers of other gateways included


async def read_as_kafka(partition: Partition, offset: int, until: int, wanted: ReadRequest) -> ReadResult:
    """Batches from an offset on, none that begins from `until` on, as a client of Kafka may see them."""
    bytes_max, files, at_least_one, shows_all = max(wanted.bytes_max, 1), wanted.files, wanted.at_least_one, wanted.shows_all
    first_own = partition.origins.first_own
    if shows_all or offset < first_own:
        until = until if shows_all else min(until, first_own)
        return await partition.read(offset, bytes_max, until=until, files=files, at_least_one=at_least_one)
    read = await partition.read(offset, bytes_max, until=until, at_least_one=at_least_one)
    data = joined(read)
    if read.size > IN_PLACE_BYTES_MAX:
        batches = await asyncio.to_thread(without_own_headers, data)
    else:
        batches = without_own_headers(data)
    return read._replace(batches=batches, size=sum(map(len, batches)))


def without_own_headers(data: Buffer) -> tuple[Buffer, ...]:
    """Batches as Kafka's clients may see them. What is damaged is sent as it is, for clients check it themselves."""
    return tuple(_plain(batch) if batch[ORIGIN_BYTE] else batch for batch in split_batches(data))


def _plain(batch: memoryview) -> Buffer:
    try:
        scanned = scan_batch(batch)
    except CorruptionError:
        return batch
    own_prefix = None if scanned is None else scanned.header.own_prefix
    if scanned is None or own_prefix is None:
        return batch
    header, records, table = scanned
    out = np.empty(len(records), np.uint8).data
    used = strip_headers(records, table, own_prefix, out)
    if used < 0:
        return batch
    codec = header.attributes & CODEC_MASK
    packed: Buffer = compress_like(codec, batch[HEADER_SIZE:], out[:used]) if codec else out[:used]
    stripped = bytearray(batch[:HEADER_SIZE])
    stripped[ATTRIBUTES] = (header.attributes & ~ORIGIN_MASK).to_bytes(2, "big")
    stripped += packed
    seal_batch(stripped)
    return bytes(stripped)
