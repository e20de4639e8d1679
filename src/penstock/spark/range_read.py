"""What a task does: fetch the batches of its range, decode them, hand over record batches."""

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
from penstock.spark.direct_reading import DirectSource
from penstock.spark.fetching import ByteSource, FetchSource
from penstock.spark.leases import renewing
from penstock.spark.options import ReadOptions
from penstock.spark.ranges import OffsetRange
from penstock.spark.value_formats import value_format

CLIENTS_MAX: Final = 4

T = TypeVar("T")


def read_range(options: ReadOptions, layout: Layout, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The records of a range."""
    return decode_range(_source(options, wanted), options, layout, wanted)


def read_range_with_dead(
    options: ReadOptions, layout: Layout, wanted: OffsetRange
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
    """The records of a range that can be decoded, and with each batch those that cannot (DEAD_SCHEMA), if there are any. Keys of
    dead records are known only if the layout has the column."""
    return _decode(_source(options, wanted), options, layout, wanted, ArrowBatchBuilder.finish_with_dead)


def decode_range(source: ByteSource, options: ReadOptions, layout: Layout, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The records of a range, wherever its bytes come from."""
    return _decode(source, options, layout, wanted, ArrowBatchBuilder.finish)


def _source(options: ReadOptions, wanted: OffsetRange) -> ByteSource:
    keep_freed_memory()
    return (DirectSource if options.is_direct else FetchSource)(_task_client(options.client), options, wanted)


def _decode(
    source: ByteSource, options: ReadOptions, layout: Layout, wanted: OffsetRange, finish: Callable[[ArrowBatchBuilder], T]
) -> Iterator[T]:
    with renewing(_task_client(options.client), wanted.leader, wanted.lease):
        yield from _decode_all(source, options, layout, wanted, finish)


def _decode_all(
    source: ByteSource, options: ReadOptions, layout: Layout, wanted: OffsetRange, finish: Callable[[ArrowBatchBuilder], T]
) -> Iterator[T]:
    form = value_format(options.value_format, layout.value_type, options.value_schema, fails=options.fails_on_malformed)
    factory = ArrowBatchFactory(layout, wanted.topic_partition, form)
    decoder = BatchDecoder(wanted.start, wanted.stop, Decompressor(), options.is_committed, options.checks_crcs)
    rows = None
    left = wanted.size
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
        # The memory that was decoded is read to again.
        decoder.feed(b"")
    if rows is not None and rows.room.rows:
        yield finish(rows)


# Connections outlive a task: the processes that run tasks are used for many, one after another.
_clients: dict[ClientOptions, BlockingClient] = {}


def _task_client(options: ClientOptions) -> BlockingClient:
    client = _clients.pop(options, None) or BlockingClient(options)
    _clients[options] = client
    while len(_clients) > CLIENTS_MAX:
        _clients.pop(next(iter(_clients))).close()
    return client


@atexit.register
def _hang_up() -> None:
    while _clients:
        _clients.popitem()[1].close()
