"""What compaction leaves of one body: which batches of it go as a whole, which records of the others, and the bytes of the rest.

Works on bytes that were read already and waits for nothing, so that it can run beside the event loop. Batches keep their base
offset, their last offset and their place; one that loses records says in its header that it has fewer, and its latest timestamp
is that of those left. A compressed one is compressed again as it was.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.blob import Buffer
from penstock.core.checksum import crc32c
from penstock.core.record_compression import compress_like, decompress
from penstock.core.record_format import (
    CHECKSUM,
    CODEC_MASK,
    CONTROL,
    CRC_FROM,
    HEADER_SIZE,
    LENGTH,
    LENGTH_FROM,
    TRANSACTIONAL,
    seal_batch,
)
from penstock.kernels.batch_list import (
    AT,
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_FIELDS,
    COUNT,
    DROP,
    FATE,
    KEEP,
    KEPT,
    MAX_TIMESTAMP,
    NEW_AT,
    NEW_SIZE,
    NEXT_OFFSET,
    PRODUCER,
    SIFT,
    SIZE,
    count_batches,
    list_batches,
)
from penstock.queue.key_map import KeyMap
from penstock.queue.transactions import Aborted

PLAIN_BYTES = 4 << 20  # of decompressed batches that are worked on at once

Table = NDArray[np.int64]


class Remnant(NamedTuple):
    """What is left of a body: bytes, and of each batch in them where it begins, the offset after it, and its latest timestamp."""

    buffers: tuple[Buffer, ...]
    batches: tuple[tuple[int, int, int], ...]
    is_changed: bool
    waiting: int  # tombstones and markers that will have to go later
    messages: int

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return sum(map(len, self.buffers))


class Scratch:
    """Memory that is used again for one body after another: new pages for each would cost as much as the work."""

    def __init__(self) -> None:
        self._memory = bytearray()

    def view(self, size: int) -> memoryview:
        """So many bytes, whatever they are. The views before it are no longer valid."""
        if len(self._memory) < size:
            self._memory = bytearray(size)
        return memoryview(self._memory)[:size]

    def joined(self, buffers: Sequence[Buffer]) -> Buffer:
        """The bytes of some buffers in one piece."""
        if len(buffers) == 1:
            return buffers[0]
        view = self.view(sum(map(len, buffers)))
        at = 0
        for buffer in buffers:
            view[at : at + len(buffer)] = buffer
            at += len(buffer)
        return view


class AbortedIndex:
    """Aborted transactions by producer."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._by_producer: dict[int, list[Aborted]] = {}  # in order: those of one producer follow one another
        for transaction in sorted(aborted):
            self._by_producer.setdefault(transaction.producer_id, []).append(transaction)

    @property
    def producers(self) -> Iterable[int]:
        """Whose transactions they are."""
        return self._by_producer.keys()

    def has(self, producer_id: int, offset: int) -> bool:
        """Whether a batch of this producer at this offset was aborted."""
        transaction = self._ending_from(producer_id, offset)
        return transaction is not None and transaction.first_offset <= offset < transaction.last_offset

    def ended_at(self, producer_id: int, offset: int) -> Aborted | None:
        """The transaction whose marker is at this offset, if that aborts one."""
        transaction = self._ending_from(producer_id, offset)
        return transaction if transaction is not None and transaction.last_offset == offset else None

    def _ending_from(self, producer_id: int, offset: int) -> Aborted | None:
        own = self._by_producer.get(producer_id, [])
        at = bisect_left(own, offset, key=lambda transaction: transaction.last_offset)
        return own[at] if at < len(own) else None


class Sieve:
    """Goes over the bodies of a partition in order, and remembers of transactions what it needs for those that follow."""

    def __init__(self, keys: KeyMap, aborted: AbortedIndex, *, noted_to: int, ripe_to: int) -> None:
        self._keys = keys
        self._aborted = aborted
        keys.bound(noted_to, ripe_to)
        self._ripe_to = ripe_to
        self._plain, self._out = Scratch(), Scratch()
        self._with_data: set[int] = set()  # producers of whose transaction something was there
        self.forgotten: list[Aborted] = []  # transactions whose marker goes, and nothing of them is left

    def sift(self, data: Buffer, *, is_last: bool) -> Remnant:
        """What is left of a body; of the last one, the last batch stays at least as a header, so that no offset is lost."""
        table = table_of(data)
        waiting = self._decide(table, len(table) - 1 if is_last else -1)
        buffers: list[Buffer] = []
        batches: list[tuple[int, int, int]] = []
        position = 0
        for rows, run, plain in _runs(data, table, self._plain):
            husk_row = len(plain) - 1 if is_last and rows.stop == len(table) else -1
            out = self._out.view(len(run))
            size, tombstones = self._keys.sift(run, plain, husk_row, out)
            waiting += tombstones
            if run is data:
                _seal(out, plain)
                left = bytes(out[:size])
            else:
                left = _packed(data, table[rows], out, plain)
            if left:
                buffers.append(left)
            for next_offset, new_size, latest in plain[:, (NEXT_OFFSET, NEW_SIZE, MAX_TIMESTAMP)].tolist():
                if new_size:
                    batches.append((position, next_offset, latest))
                    position += new_size
            table[rows, KEPT] = plain[:, KEPT]
        is_changed = bool((table[:, KEPT] != table[:, COUNT]).any() or (table[:, FATE] == DROP).any())
        is_changed = is_changed or len(batches) < len(table)
        messages = int(table[(table[:, ATTRIBUTES] & CONTROL) == 0, KEPT].sum())
        return Remnant(tuple(buffers), tuple(batches), is_changed, waiting, messages)

    def _decide(self, table: Table, last_row: int) -> int:
        """The fate of whole batches: those of aborted transactions go, and markers when they may. How many markers stay."""
        waiting = 0
        for row in np.flatnonzero(table[:, ATTRIBUTES] & (TRANSACTIONAL | CONTROL)).tolist():
            attributes, producer, offset = table[row, (ATTRIBUTES, PRODUCER, BASE_OFFSET)].tolist()
            if attributes & CONTROL:
                # A marker whose data is dropped by this pass stays until the next: a consumer may have read that data already.
                is_needed = producer in self._with_data or offset >= self._ripe_to or row == last_row
                table[row, FATE] = KEEP if is_needed else DROP
                self._with_data.discard(producer)
                waiting += is_needed
                aborted = self._aborted.ended_at(producer, offset)
                if aborted is not None and not is_needed:
                    self.forgotten.append(aborted)
                continue
            if not table[row, COUNT]:
                continue  # a header, left by an earlier pass
            self._with_data.add(producer)
            if self._aborted.has(producer, offset):
                table[row, FATE] = DROP
        return waiting


def note_keys(keys: KeyMap, data: Buffer, aborted: AbortedIndex, from_offset: int) -> int | None:
    """Put the keys of a body into a map, but not those of aborted transactions; the first offset that found no room."""
    table = table_of(data)
    for row in np.flatnonzero(table[:, ATTRIBUTES] & (TRANSACTIONAL | CONTROL)).tolist():
        attributes, producer, offset = table[row, (ATTRIBUTES, PRODUCER, BASE_OFFSET)].tolist()
        if attributes & CONTROL or aborted.has(producer, offset):
            table[row, FATE] = DROP
    for _, run, plain in _runs(data, table, Scratch()):
        full_at = keys.note(run, plain, from_offset)
        if full_at is not None:
            return full_at
    return None


def table_of(data: Buffer) -> Table:
    """A row for each batch of a run (see kernels/compaction.py)."""
    table: Table = np.empty((count_batches(data), BATCH_FIELDS), np.int64)
    list_batches(data, table)
    return table


def _runs(data: Buffer, table: Table, scratch: Scratch) -> Iterator[tuple[slice, Buffer, Table]]:
    """The batches without compression, a part at a time: which rows these are, their bytes and their own table. If none is
    compressed, all is one part as it is."""
    if not (table[:, ATTRIBUTES] & CODEC_MASK).any():
        yield slice(0, len(table)), data, table
        return
    view = memoryview(data)
    begin = size = 0
    parts: list[Buffer] = []
    for row in range(len(table)):
        batch = _plain_batch(view, table[row])
        parts += batch
        size += sum(map(len, batch))
        if size >= PLAIN_BYTES or row + 1 == len(table):
            rows = slice(begin, row + 1)
            plain = scratch.joined(parts)
            own = table_of(plain)
            own[:, FATE] = table[rows, FATE]
            yield rows, plain, own
            begin, size, parts = row + 1, 0, []


def _plain_batch(view: memoryview, row: Table) -> tuple[Buffer, ...]:
    """A batch without compression, in buffers that follow one another."""
    at, size, attributes = int(row[AT]), int(row[SIZE]), int(row[ATTRIBUTES])
    batch = view[at : at + size]
    if not attributes & CODEC_MASK or row[FATE] != SIFT:
        return (batch,)
    try:
        records = decompress(attributes & CODEC_MASK, batch[HEADER_SIZE:])
    except ValueError:
        row[FATE] = KEEP  # a client sent it so, and may know what it is
        return (batch,)
    head = bytearray(batch[:HEADER_SIZE])
    head[LENGTH] = (HEADER_SIZE - LENGTH_FROM + len(records)).to_bytes(4, "big")
    return head, records


def _seal(view: memoryview, table: Table) -> None:
    """Set the checksums of batches that have changed."""
    changed = np.flatnonzero((table[:, NEW_SIZE] > 0) & (table[:, NEW_SIZE] != table[:, SIZE]))
    for at, size in table[changed][:, (NEW_AT, NEW_SIZE)].tolist():
        view[at + CHECKSUM.start : at + CHECKSUM.stop] = crc32c(view[at + CRC_FROM : at + size]).to_bytes(4, "big")


def _packed(data: Buffer, table: Table, rebuilt: memoryview, plain: Table) -> bytes:
    """The batches that are left, those that have changed compressed again as they were; their new sizes go into the table."""
    sent = memoryview(data)
    left: list[Buffer] = []
    for row in range(len(table)):
        at, size = int(plain[row, NEW_AT]), int(plain[row, NEW_SIZE])
        original = sent[int(table[row, AT]) : int(table[row, AT] + table[row, SIZE])]
        if size and plain[row, KEPT] == table[row, COUNT] and table[row, COUNT]:
            left.append(original)
            plain[row, NEW_SIZE] = len(original)
        elif size:
            left.append(_repacked(original, rebuilt[at : at + size], int(table[row, ATTRIBUTES]) & CODEC_MASK))
            plain[row, NEW_SIZE] = len(left[-1])
    return b"".join(left)


def _repacked(sent: memoryview, rebuilt: memoryview, codec: int) -> bytes:
    records: Buffer = rebuilt[HEADER_SIZE:]
    if codec and len(records):
        records = compress_like(codec, sent[HEADER_SIZE:], records)
    batch = bytearray(rebuilt[:HEADER_SIZE]) + records
    seal_batch(batch)
    return bytes(batch)
