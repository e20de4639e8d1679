"""A small model of a compacted partition: all that was written to it, and so what readers must, may and must not be shown."""

from __future__ import annotations

from typing import NamedTuple

from penstock.blob import FilePiece
from penstock.queue import Partition
from penstock.testing.batches import KeyedRecord, keyed_records_of

ABORT = b"\0\0\0\0"


class Written(NamedTuple):
    """A message as it was written; without a producer it belongs to no transaction."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    producer: int | None


class KeyedLog:
    """What was written, by offset, and what became of transactions."""

    def __init__(self, first_offset: int = 0) -> None:
        self.start = self.end = first_offset
        self.written: dict[int, Written] = {}
        self.markers: dict[int, int] = {}
        self.open: dict[int, list[int]] = {}
        self.aborted: set[int] = set()

    def append(self, messages: list[Written]) -> int:
        """Messages that were acknowledged; the offset of the first."""
        base = self.end
        for message in messages:
            self.written[self.end] = message
            if message.producer is not None:
                self.open.setdefault(message.producer, []).append(self.end)
            self.end += 1
        return base

    def end_transaction(self, producer: int, *, commit: bool) -> None:
        """A marker was acknowledged."""
        offsets = self.open.pop(producer, [])
        if not commit:
            self.aborted.update(offsets)
        self.markers[self.end] = producer
        self.end += 1

    @property
    def stable(self) -> int:
        """Up to where all transactions are decided."""
        return min((offsets[0] for offsets in self.open.values()), default=self.end)

    def last_of_keys(self, until: int) -> dict[bytes, int]:
        """The offset of the last message of each key before an offset that was not aborted."""
        found: dict[bytes, int] = {}
        for offset in range(self.start, min(until, self.stable)):
            message = self.written.get(offset)
            if message is not None and message.key is not None and offset not in self.aborted:
                found[message.key] = offset
        return found

    def judge(self, partition: Partition, found: list[KeyedRecord], *, now_ms: int) -> None:
        """Everything a reader was shown, from start to end, markers left out."""
        assert (partition.start_offset, partition.end_offset) == (self.start, self.end)
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        for record in found:
            assert self.written[record.offset][:3] == record[1:], record
        present = set(offsets)
        last = self.last_of_keys(self.end)
        ripe_to = partition.clean.ripened(now_ms, partition.config.delete_retention_ms)
        for offset in range(self.start, self.end):
            if offset in self.markers or offset in present:
                continue
            message = self.written[offset]
            assert offset < self.stable, f"{offset} is gone, though transactions before it are open"
            if offset in self.aborted:
                continue
            assert message.key is not None, f"{offset} has no key and is gone"
            is_ripe = message.value is None and offset < ripe_to
            assert last[message.key] > offset or is_ripe, f"{offset} was the last of its key and is gone"

    def judge_pass(self, partition: Partition, found: list[KeyedRecord]) -> None:
        """What must be gone once a pass is complete."""
        clean = partition.clean
        last = self.last_of_keys(clean.clean_to)
        for record in found:
            if record.offset < clean.clean_to and record.key is not None:
                assert record.offset not in self.aborted, f"{record.offset} was aborted"
                assert last[record.key] == record.offset, f"{record.offset} is superseded by {last[record.key]}"
                assert record.value is not None or record.offset >= clean.ripe_to, f"tombstone {record.offset} is ripe"

    def committed_view(self, found: list[KeyedRecord]) -> list[KeyedRecord]:
        """What of that a reader of committed data is shown."""
        return [record for record in found if record.offset < self.stable and record.offset not in self.aborted]


async def raw_batches(partition: Partition, offset: int, bytes_max: int, until: int | None = None) -> tuple[bytes, int]:
    """What a read gives, and where it goes on."""
    result = await partition.read(offset, bytes_max, until=until)
    parts = [batch for batch in result.batches if not isinstance(batch, FilePiece)]
    assert len(parts) == len(result.batches)
    return b"".join(parts), result.next_offset


async def read_log(partition: Partition, bytes_max: int = 2000) -> list[KeyedRecord]:
    """All data from start to end, markers left out."""
    found: list[KeyedRecord] = []
    offset = partition.start_offset
    while offset < partition.end_offset:
        raw, next_offset = await raw_batches(partition, offset, bytes_max)
        assert next_offset > offset
        found += data_records(raw)
        offset = next_offset
    return [record for record in found if record.offset >= partition.start_offset]


async def read_committed(partition: Partition, bytes_max: int = 2000) -> list[KeyedRecord]:
    """What a client that reads committed data makes of it, with the list of aborted transactions that a fetch gives it."""
    found: list[KeyedRecord] = []
    offset = partition.start_offset
    while offset < partition.stable_offset:
        raw, next_offset = await raw_batches(partition, offset, bytes_max, until=partition.stable_offset)
        waiting = sorted(partition.aborted_between(offset, next_offset), key=lambda one: one.first_offset)
        dropped: set[int] = set()
        for batch in _split(raw):
            base, attributes, producer = _head(batch)
            while waiting and waiting[0].first_offset <= base:
                dropped.add(waiting.pop(0).producer_id)
            if attributes & 0x20:
                if keyed_records_of(batch)[0].key == ABORT:
                    dropped.discard(producer)
            elif not (attributes & 0x10 and producer in dropped):
                found += keyed_records_of(batch)
        assert next_offset > offset
        offset = next_offset
    return [record for record in found if record.offset >= partition.start_offset]


def data_records(raw: bytes) -> list[KeyedRecord]:
    """The records of batches that are no markers; the batches must follow one another."""
    found: list[KeyedRecord] = []
    after = -1
    for batch in _split(raw):
        base, attributes, _ = _head(batch)
        assert base >= after, f"the batch at {base} comes after {after}"
        after = base + int.from_bytes(batch[23:27], "big") + 1
        records = keyed_records_of(batch)
        if not attributes & 0x20:
            found += records
    return found


def _split(raw: bytes) -> list[bytes]:
    found: list[bytes] = []
    at = 0
    while at < len(raw):
        end = at + 12 + int.from_bytes(raw[at + 8 : at + 12], "big")
        found.append(raw[at:end])
        at = end
    return found


def _head(batch: bytes) -> tuple[int, int, int]:
    base = int.from_bytes(batch[:8], "big")
    return base, int.from_bytes(batch[21:23], "big"), int.from_bytes(batch[43:51], "big", signed=True)
