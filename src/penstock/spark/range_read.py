"""Reads a range in a task: fetches its stored batches and decodes them into Arrow record batches."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import pyarrow as pa

from penstock.core.memory import keep_freed_memory
from penstock.kafka.client import BlockingClient, ClientOptions
from penstock.kernels.arrow_decode import BatchDecoder
from penstock.spark.arrow_batches import ArrowBatchBuilder, ArrowBatchFactory
from penstock.spark.columns import Layout
from penstock.spark.decompression import Decompressor
from penstock.spark.direct_reading import OFFSETS_MIN, DirectSource
from penstock.spark.fetching import ByteSource, FetchSource
from penstock.spark.leases import renewing
from penstock.spark.options import ReadOptions
from penstock.spark.ranges import OffsetRange
from penstock.spark.value_formats import value_format

CLIENTS_MAX: Final = 4

T = TypeVar("T")


def read_range(options: ReadOptions, layout: Layout, offset_range: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range."""
    return decode_range(_source(options, offset_range), options, layout, offset_range)


def read_range_with_dead(
    options: ReadOptions, layout: Layout, offset_range: OffsetRange
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
    """Yield the records of a range, and with each batch those whose value cannot be decoded (DEAD_SCHEMA), or None. Keys of dead
    records are present only if the layout has the column."""
    return _decode(_source(options, offset_range), options, layout, offset_range, ArrowBatchBuilder.finish_with_dead)


def decode_range(source: ByteSource, options: ReadOptions, layout: Layout, offset_range: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range from any source of stored batches."""
    return _decode(source, options, layout, offset_range, ArrowBatchBuilder.finish)


def _source(options: ReadOptions, offset_range: OffsetRange) -> ByteSource:
    keep_freed_memory()
    is_direct = options.is_direct and offset_range.size >= OFFSETS_MIN
    return (DirectSource if is_direct else FetchSource)(_task_client(options.client), options, offset_range)


def _decode(
    source: ByteSource, options: ReadOptions, layout: Layout, offset_range: OffsetRange, finish: Callable[[ArrowBatchBuilder], T]
) -> Iterator[T]:
    with renewing(_task_client(options.client), offset_range.leader, offset_range.lease):
        yield from _decode_all(source, options, layout, offset_range, finish)


def _decode_all(
    source: ByteSource, options: ReadOptions, layout: Layout, offset_range: OffsetRange, finish: Callable[[ArrowBatchBuilder], T]
) -> Iterator[T]:
    form = value_format(options, layout.value_type, fails=options.fails_on_malformed)
    factory = ArrowBatchFactory(layout, offset_range.topic_partition, form)
    decoder = BatchDecoder(offset_range.start, offset_range.stop, Decompressor(), options.is_committed, options.checks_crcs)
    rows = None
    left = offset_range.size
    for span in source.spans():
        decoder.feed(span.data, span.aborted, span.first_offset)
        more = True
        while more:
            if rows is None:
                rows = factory.start(len(span.data), decoder.needed, left)
            more = decoder.fill(rows.room)
            if more:
                left -= rows.room.rows
                if rows.room.rows:
                    yield finish(rows)
                rows = None
        # The buffer that was decoded is reused for the next fetch.
        decoder.feed(b"")
    if rows is not None and rows.room.rows:
        yield finish(rows)


# Connections outlive a task: Spark reuses worker processes for many tasks.
_clients: dict[ClientOptions, BlockingClient] = {}


def _task_client(options: ClientOptions) -> BlockingClient:
    client = _clients.pop(options, None) or BlockingClient(options)
    _clients[options] = client
    while len(_clients) > CLIENTS_MAX:
        _clients.pop(next(iter(_clients))).close()
    return client


@atexit.register
def _close_clients() -> None:
    while _clients:
        _clients.popitem()[1].close()
