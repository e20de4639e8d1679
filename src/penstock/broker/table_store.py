"""The content of static tables, in its own tablet: stored batches of a queue, unchanged, in chunks of a few megabytes.

"c" | table id | 0 | partition 4 | first offset 8
head:  version 1 | next offset 8 | rows 8 | bytes 8
value: batches of the partition, without markers and aborted ones; rows before the first offset do not count

A table is there when its node is (see namespace): chunks of a table without one were left by a crash, and go with the next start.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple

from penstock.blob import Buffer
from penstock.broker.system_tablet import SystemTablet
from penstock.core.errors import CorruptionError
from penstock.core.format_version import check_version
from penstock.tablet import DeleteRange, Request, Write

VERSION: Final = 1
DELETES_AT_ONCE: Final = 4000
_PLACE = Struct(">Iq")
_HEAD = Struct(">BqqQ")


class Chunk(NamedTuple):
    """Some rows of one partition: those with first <= offset < next_offset."""

    partition: int
    first: int
    next_offset: int
    rows: int
    size: int


class TableStore:
    """Chunks of all static tables."""

    def __init__(self, tablet: SystemTablet) -> None:
        self._tablet = tablet

    async def append(self, table_id: str, chunk: Chunk, batches: Sequence[Buffer]) -> None:
        """Store a chunk; it is durable when this returns."""
        head = _HEAD.pack(VERSION, chunk.next_offset, chunk.rows, chunk.size)
        await self._tablet.execute(Request((Write(_key(table_id, chunk), tuple(batches), head),)))

    def chunks(self, table_id: str) -> list[Chunk]:
        """The chunks of a table by partition and offset: the order of its rows."""
        prefix = _prefix(table_id)
        listed: list[Chunk] = []
        for key in self._tablet.keys(prefix, prefix[:-1] + b"\1"):
            raw = self._tablet.head(key) or b""
            check_version(raw[0] if raw else 0, VERSION, "a chunk of a static table")
            _, next_offset, rows, size = _HEAD.unpack_from(raw)
            partition, first = _PLACE.unpack(key[len(prefix) :])
            listed.append(Chunk(partition, first, next_offset, rows, size))
        return listed

    async def read(self, table_id: str, chunk: Chunk) -> memoryview:
        """The batches of a chunk."""
        value = await self._tablet.latest.read(_key(table_id, chunk))
        if value is None or len(value) != chunk.size:
            raise CorruptionError(f"a chunk of table {table_id} is not there any more, or not whole; was it removed meanwhile?")
        return memoryview(value)

    async def delete(self, table_id: str) -> None:
        """Delete a table, some chunks per request: a large table has more than one request can delete."""
        prefix = _prefix(table_id)
        while keys := list(islice(self._tablet.keys(prefix, prefix[:-1] + b"\1"), DELETES_AT_ONCE)):
            await self._tablet.execute(Request((DeleteRange(prefix, keys[-1] + b"\0"),), makes_room=True))

    def tables(self) -> set[str]:
        """All tables with chunks."""
        ids: set[str] = set()
        begin = b"c"
        while (key := next(iter(self._tablet.keys(begin, b"d")), None)) is not None:
            name = key[1:].partition(b"\0")[0]
            ids.add(name.decode())
            begin = b"c" + name + b"\1"
        return ids


def _prefix(table_id: str) -> bytes:
    return b"c" + table_id.encode() + b"\0"


def _key(table_id: str, chunk: Chunk) -> bytes:
    return _prefix(table_id) + _PLACE.pack(chunk.partition, chunk.first)
