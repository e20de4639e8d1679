"""The topic `_schemas` as the registry's log: records are appended in batches, each all or nothing, and read back by offset."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from penstock.broker.internal_log import Apply, visit_records
from penstock.broker.internal_topics import SCHEMAS_TOPIC
from penstock.broker.schema_registry.partition import SchemaPartition
from penstock.broker.schema_registry.records import RecordKey, SchemaValue, unpack_schema
from penstock.core.errors import CorruptionError
from penstock.core.record_format import framed, packed_record

READ_BYTES: Final = 256 << 10  # that are applied in one turn of the event loop
CACHE_BYTES: Final = 32 << 20

Entry = tuple[RecordKey, bytes | None]


class SchemaLog:
    """Appends records and reads them. Values that were read lately are in memory."""

    def __init__(self, partition: SchemaPartition) -> None:
        self._partition = partition
        self._cache: OrderedDict[int, SchemaValue] = OrderedDict()
        self._cached_bytes = 0

    async def append(self, entries: Sequence[Entry], end_offset: int) -> None:
        """Store records at the end of the log, all of them or none; they are durable when this returns. LogChangedError if the
        log does not end at this offset any more: then nothing was stored. After other errors they may be stored or not."""
        now_ms = int(self._partition.clock.wall() * 1000)
        records = [packed_record(number, value, key=key.pack()) for number, (key, value) in enumerate(entries)]
        await self._partition.append(framed(b"".join(records), len(records), (now_ms, now_ms)), end_offset)

    async def read_on(self, offset: int, apply: Apply) -> tuple[int, int]:
        """Apply the batches from the one that holds an offset on, some at a time. Returns the offset after them, and the end."""
        page = await self._partition.read(offset, READ_BYTES)
        if page is None:
            return 0, 0
        visit_records(bytes(page.batches), apply)
        return page.next_offset, page.end_offset

    def forget(self) -> None:
        """Drop what is in memory."""
        self._cache.clear()
        self._cached_bytes = 0

    async def value_at(self, offset: int) -> SchemaValue:
        """The schema of the record at an offset."""
        value = self._cache.get(offset)
        if value is not None:
            self._cache.move_to_end(offset)
            return value
        values: list[SchemaValue] = []

        def take(at: int, _: bytes | None, raw: bytes | None) -> None:
            if at == offset and raw is not None:
                values.append(unpack_schema(raw))

        page = await self._partition.read(offset, 1)
        if page is not None:
            visit_records(bytes(page.batches), take)
        if not values:
            raise CorruptionError(f"the schema at offset {offset} of {SCHEMAS_TOPIC} is not there any more")
        self._keep(offset, values[0])
        return values[0]

    def _keep(self, offset: int, value: SchemaValue) -> None:
        if offset not in self._cache:
            self._cached_bytes += len(value.schema)
        self._cache[offset] = value
        while self._cached_bytes > CACHE_BYTES:
            _, evicted = self._cache.popitem(last=False)
            self._cached_bytes -= len(evicted.schema)
