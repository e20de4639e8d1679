"""Topics as Kafka clients write them: codecs, heads and bodies, large messages, log starts, compaction."""

from __future__ import annotations

import time
from typing import Any, Final

from confluent_kafka import TopicPartition

from penstock.core.record_format import header_at
from tests.upgrade.clients import LARGEST, TIMEOUT_S, Clients, wait_until
from tests.upgrade.content import Notes

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
SMALLEST_SEGMENT: Final = str(128 << 10)


class Codecs:
    """A topic per codec, with several batches each."""

    name = "codecs"

    def write(self, clients: Clients, notes: Notes) -> None:
        for codec in CODECS:
            clients.create(codec)
            notes[codec] = []
            for _ in range(3):
                self._batch(clients, notes, codec)

    def check(self, clients: Clients, notes: Notes) -> None:
        for number, codec in enumerate(CODECS):
            assert clients.values(codec) == notes[codec]
            stored = clients.raw.fetch(codec, 0).records
            assert isinstance(stored, bytes | memoryview)
            assert header_at(memoryview(stored), 0).attributes & 7 == number, f"{codec} is stored in another codec"

    def add(self, clients: Clients, notes: Notes) -> None:
        for codec in CODECS:
            self._batch(clients, notes, codec)

    def _batch(self, clients: Clients, notes: Notes, codec: str) -> None:
        values = [f"{codec} {len(notes[codec]) + at} " + "x" * 50 for at in range(20)]
        clients.produce(codec, [(None, value.encode()) for value in values], codec)
        notes[codec] += values


class HeadAndBodies:
    """A topic with several bodies, and a head with pieces of all sizes."""

    name = "head-and-bodies"
    _SIZES: Final = (100, 700, 3_000, 9_000, 40_000)

    def write(self, clients: Clients, notes: Notes) -> None:
        clients.create(self.name, segment_bytes=SMALLEST_SEGMENT)
        notes["sizes"] = []
        self._write(clients, notes, 44)  # four bodies, and a head of four pieces

    def check(self, clients: Clients, notes: Notes) -> None:
        expected = [_text(number, size) for number, size in enumerate(notes["sizes"])]
        assert clients.values(self.name) == expected
        for offset in range(0, len(expected), 7):
            message = clients.read(self.name, offset=offset)[0]
            assert (message.offset(), message.value()) == (offset, expected[offset].encode())

    def add(self, clients: Clients, notes: Notes) -> None:
        self._write(clients, notes, 12)

    def _write(self, clients: Clients, notes: Notes, count: int) -> None:
        for _ in range(count):
            number = len(notes["sizes"])
            size = self._SIZES[number % len(self._SIZES)]
            clients.produce(self.name, [(None, _text(number, size).encode())])
            notes["sizes"].append(size)


class LargeMessages:
    """Messages larger than a data blob may be, among small ones."""

    name = "large"
    _SIZES: Final = (10, 9 << 20, 1_500_000, 10)

    def write(self, clients: Clients, notes: Notes) -> None:
        clients.create(self.name, max_message_bytes=str(LARGEST))
        notes["count"] = 0
        self._write(clients, notes, len(self._SIZES))

    def check(self, clients: Clients, notes: Notes) -> None:
        found = clients.values(self.name)
        assert found == [_text(number, self._SIZES[number % len(self._SIZES)]) for number in range(notes["count"])]

    def add(self, clients: Clients, notes: Notes) -> None:
        self._write(clients, notes, 2)

    def _write(self, clients: Clients, notes: Notes, count: int) -> None:
        for _ in range(count):
            number = notes["count"]
            clients.produce(self.name, [(None, _text(number, self._SIZES[number % len(self._SIZES)]).encode())])
            notes["count"] += 1


class LogStarts:
    """Topics of which the beginning is gone: by retention, and by a request that names an offset within a batch."""

    name = "log-starts"
    _TRIMMED: Final = "trimmed"
    _DELETED: Final = "deleted"

    def write(self, clients: Clients, notes: Notes) -> None:
        clients.create(self._TRIMMED, penstock_retention_messages="10")
        clients.create(self._DELETED)
        notes["ends"] = {self._TRIMMED: [0, 0], self._DELETED: [0, 0]}
        self._write(clients, notes)
        self._write(clients, notes)
        self._delete(clients, notes)
        wait_until(lambda: clients.ends(self._TRIMMED)[0] > 0, "retention deletes messages")
        clients.configure(self._TRIMMED, "penstock.retention.messages", "-1")
        time.sleep(1.0)  # a run of retention that has begun before that ends
        notes["ends"][self._TRIMMED][0] = clients.ends(self._TRIMMED)[0]

    def check(self, clients: Clients, notes: Notes) -> None:
        for topic, (first, last) in notes["ends"].items():
            assert clients.ends(topic) == (first, last)
            assert first > 0
            found = [(message.offset(), (message.value() or b"").decode()) for message in clients.read(topic)]
            assert found == [(offset, _text(offset, 30)) for offset in range(first, last)]

    def add(self, clients: Clients, notes: Notes) -> None:
        self._write(clients, notes)
        self._delete(clients, notes)

    def _write(self, clients: Clients, notes: Notes) -> None:
        for topic, ends in notes["ends"].items():
            clients.produce(topic, [(None, _text(ends[1] + at, 30).encode()) for at in range(20)])
            ends[1] += 20

    def _delete(self, clients: Clients, notes: Notes) -> None:
        ends = notes["ends"][self._DELETED]
        ends[0] = ends[1] - 17
        partition = TopicPartition(self._DELETED, 0, ends[0])
        clients.admin.delete_records([partition])[partition].result(TIMEOUT_S)


class CompactedTopic:
    """A compacted topic with tombstones: a part that is compacted, and one behind it that is not yet."""

    name = "compacted"
    _KEYS: Final = 12
    _LAG: Final = "min.compaction.lag.ms"

    def write(self, clients: Clients, notes: Notes) -> None:
        # Segments of 14 bytes, as Kafka allows, are of the smallest size here, and the last one is compacted as well.
        eager: dict[str, Any] = {"cleanup_policy": "compact", "segment_bytes": "14", "min_cleanable_dirty_ratio": "0"}
        clients.create(self.name, delete_retention_ms=str(1 << 40), **eager)
        notes["last"], notes["rounds"] = {}, 0
        for _ in range(3):
            self._round(clients, notes)
        self._wait_compacted(clients, notes)
        clients.configure(self.name, self._LAG, str(1 << 40))
        self._round(clients, notes)
        notes["offsets"] = [message.offset() for message in clients.read(self.name)]
        assert len(notes["offsets"]) > self._KEYS
        assert notes["offsets"][0] > 0

    def check(self, clients: Clients, notes: Notes) -> None:
        found = clients.read(self.name)
        assert notes["offsets"] is None or [message.offset() for message in found] == notes["offsets"]
        last = {(message.key() or b"").decode(): message.value() for message in found}
        assert {key: None if value is None else value.decode() for key, value in last.items()} == notes["last"]

    def add(self, clients: Clients, notes: Notes) -> None:
        notes["offsets"] = None
        clients.configure(self.name, self._LAG, "0")
        self._round(clients, notes)
        self._wait_compacted(clients, notes)

    def _round(self, clients: Clients, notes: Notes) -> None:
        notes["rounds"] += 1
        for key in range(self._KEYS):
            is_tombstone = key % 4 == notes["rounds"] % 4
            notes["last"][f"key-{key}"] = None if is_tombstone else _text(notes["rounds"], 400)
        pairs = [(key, None if value is None else value.encode()) for key, value in notes["last"].items()]
        clients.produce(self.name, pairs)

    def _wait_compacted(self, clients: Clients, notes: Notes) -> None:
        wait_until(lambda: len(clients.read(self.name)) == len(notes["last"]), "compaction leaves one message of each key")


def _text(number: int, size: int) -> str:
    """A text of a size, which differs from that of any other number and compresses well."""
    line = f"message {number}; "
    return (line * (size // len(line) + 1))[:size]
