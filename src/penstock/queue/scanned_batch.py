"""A stored batch with a table of where everything in its records is, and which batches of a read are committed data: what
gateways read partitions by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.blob import Buffer, FilePiece
from penstock.core.record_format import (
    CONTROL,
    KIND_BYTE,
    PRODUCER_ID,
    TRANSACTIONAL,
    BatchHeader,
    base_offset_of,
    header_at,
    plain_records,
)
from penstock.kernels.record_scan import FIELDS, OFFSET_DELTA, scan_records
from penstock.queue.batch import split_batches
from penstock.queue.body import ReadResult
from penstock.queue.transactions import Aborted


class ScannedBatch(NamedTuple):
    """Records without their compression, and a row of record_scan's columns for each."""

    header: BatchHeader
    records: memoryview
    table: npt.NDArray[np.int64]

    def first_row(self, offset: int) -> int:
        """The row of the first record from an offset on."""
        return int(np.searchsorted(self.table[:, OFFSET_DELTA], offset - self.header.base_offset))


def scan_batch(batch: Buffer) -> ScannedBatch | None:
    """The records of a batch; None if it is a marker, or if compaction has left none in it."""
    header = header_at(batch)
    if header.is_control or not header.message_count:
        return None
    records = plain_records(batch, header)
    table = np.empty((header.message_count, FIELDS), np.int64)
    scan_records(records, table)
    return ScannedBatch(header, records, table)


def joined(read: ReadResult) -> bytes:
    """What was read, in one piece: a batch may be in several."""
    parts = [part for part in read.batches if not isinstance(part, FilePiece)]
    assert len(parts) == len(read.batches), "nothing was asked for as a file"
    return b"".join(parts)


def committed_batches(data: Buffer, aborted: Sequence[Aborted]) -> Iterator[memoryview]:
    """The batches of some that are data, without those of aborted transactions."""
    for batch in split_batches(data):
        if not batch[KIND_BYTE] & CONTROL and not is_aborted(batch, aborted):
            yield batch


def is_transactional(batch: memoryview) -> bool:
    """Whether a batch is part of a transaction."""
    return bool(batch[KIND_BYTE] & TRANSACTIONAL)


def is_aborted(batch: memoryview, aborted: Sequence[Aborted]) -> bool:
    """Whether a batch is part of a transaction that was aborted."""
    if not aborted or not is_transactional(batch):
        return False
    base_offset, producer = base_offset_of(batch), int.from_bytes(batch[PRODUCER_ID], "big", signed=True)
    return any(
        transaction.producer_id == producer and transaction.first_offset <= base_offset <= transaction.last_offset
        for transaction in aborted
    )
