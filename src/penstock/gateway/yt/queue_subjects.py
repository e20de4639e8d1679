"""Queues whose topic checks schemas: the schema of the queue is that of the topic's subject, and rows name it.

A row is then stored in the framing of Confluent's serializers: as JSON with a JSON Schema, or as Avro if the latest schema of the
subject is of Avro. Rows of Kafka's clients are read by the schema that they name, and held to that of the queue like all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import orjson

from penstock.broker import Topic
from penstock.broker.schema_registry import (
    DEFAULT_CONTEXT,
    LATEST,
    NewSchema,
    RegistryError,
    SchemaRegistry,
    SchemaValue,
)
from penstock.core.errors import PenstockError
from penstock.gateway.yt.encoded_rows import EncodedRows
from penstock.gateway.yt.errors import SCHEMA_VIOLATION, YtError
from penstock.gateway.yt.row_batch import ReadBatch
from penstock.gateway.yt.row_columns import Numbers
from penstock.gateway.yt.schema import Schema
from penstock.gateway.yt.subject_schemas import avro_schema, json_schema
from penstock.kernels.json_rows import SIZE, START
from penstock.kernels.record_scan import VALUE_AT, VALUE_SIZE
from penstock.schemas import FRAME_SIZE, UnreadableValueError, ValueCodec, framed_value

KEPT_MAX: Final = 1000

Encode = Callable[[bytes], bytes]
"""Turns a row in its stored form, JSON, into a payload."""


class _Subject(NamedTuple):
    """The schema that rows of a queue name, as of an offset of the registry's log."""

    as_of: int
    schema_id: int
    encode: Encode


class QueueSubjects:
    """Frames rows that are written, and removes the frames of those that are read."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._subjects: dict[tuple[str, Schema], _Subject] = {}
        self._codecs: dict[tuple[int, str], ValueCodec] = {}

    async def framed(self, topic: Topic, schema: Schema, parts: Sequence[EncodedRows]) -> list[EncodedRows]:
        """Rows as they are stored in a topic. YtError if its subject does not take the schema of the queue."""
        rule = topic.config.schema_rule
        if rule is None or rule.value is None:
            return list(parts)
        subject = await self._subject(topic.name, schema)
        return [_framed(part, subject) for part in parts]

    async def unframed(self, batch: ReadBatch) -> ReadBatch:
        """A batch whose framed values are JSON; those that no schema can read stay as they are."""
        places = _framed_places(batch)
        if not len(places):
            return batch
        records = bytes(batch.records)
        table = batch.table.copy()
        appended: list[bytes] = []
        end = len(records)
        for place in places.tolist():
            at, size = int(table[place, VALUE_AT]), int(table[place, VALUE_SIZE])
            payload = records[at + FRAME_SIZE : at + size]
            schema_id = int.from_bytes(records[at + 1 : at + FRAME_SIZE], "big")
            row = await self._row(schema_id, payload)
            if row is payload:
                table[place, VALUE_AT], table[place, VALUE_SIZE] = at + FRAME_SIZE, size - FRAME_SIZE
            elif row is not None:
                appended.append(row)
                table[place, VALUE_AT], table[place, VALUE_SIZE] = end, len(row)
                end += len(row)
        return batch._replace(records=b"".join((records, *appended)), table=table)

    async def _row(self, schema_id: int, payload: bytes) -> bytes | None:
        """A payload as JSON; None if it cannot be read."""
        try:
            value = await self._registry.with_id(schema_id, DEFAULT_CONTEXT)
            if value.schema_type == "JSON":
                return payload
            return orjson.dumps((await self._codec(value)).decode(payload))
        except (RegistryError, UnreadableValueError, orjson.JSONEncodeError):
            return None

    async def _codec(self, value: SchemaValue) -> ValueCodec:
        key = (value.id, value.schema)
        codec = self._codecs.get(key)
        if codec is None:
            codec = await self._registry.codec(value)
            while len(self._codecs) >= KEPT_MAX:
                self._codecs.pop(next(iter(self._codecs)))
            self._codecs[key] = codec
        return codec

    async def _subject(self, topic: str, schema: Schema) -> _Subject:
        as_of = (await self._registry.state()).next_offset
        known = self._subjects.get((topic, schema))
        if known is not None and known.as_of == as_of:
            return known
        value = await self._register(f"{topic}-value", schema)
        encode: Encode = bytes if value.schema_type == "JSON" else _avro_encoder(await self._codec(value))
        subject = _Subject((await self._registry.state()).next_offset, value.id, encode)
        while len(self._subjects) >= KEPT_MAX:
            self._subjects.pop(next(iter(self._subjects)))
        self._subjects[topic, schema] = subject
        return subject

    async def _register(self, subject: str, schema: Schema) -> SchemaValue:
        """The schema of a queue as a version of the subject, of the kind that this has."""
        try:
            kind = (await self._registry.version(subject, LATEST)).schema_type
        except RegistryError:
            kind = "JSON"
        if kind not in ("JSON", "AVRO"):
            raise YtError(SCHEMA_VIOLATION, f"subject {subject} has schemas of type {kind}, and rows are stored as JSON or Avro")
        text = orjson.dumps(json_schema(schema) if kind == "JSON" else avro_schema(schema)).decode()
        try:
            return await self._registry.register(subject, NewSchema(text, kind))
        except RegistryError as error:
            raise YtError(
                SCHEMA_VIOLATION,
                f"the topic checks schemas (penstock.schema.validation), and subject {subject} does not take that of the queue: "
                f"{error}",
            ) from error


def _avro_encoder(codec: ValueCodec) -> Encode:
    return lambda row: codec.encode(orjson.loads(row))


def _framed_places(batch: ReadBatch) -> Numbers:
    """The records whose value begins with a frame; the JSON of a row never begins with a zero byte."""
    sizes = batch.table[:, VALUE_SIZE]
    if not len(sizes):
        return sizes
    octets = np.frombuffer(batch.records, np.uint8)
    starts = np.where(sizes > FRAME_SIZE, batch.table[:, VALUE_AT], 0)
    return np.flatnonzero((sizes > FRAME_SIZE) & (octets[starts] == 0))


def _framed(part: EncodedRows, subject: _Subject) -> EncodedRows:
    rows = part.rows.copy()
    values: list[bytes] = []
    end = 0
    for place in range(part.count):
        values.append(framed_value(subject.schema_id, _encoded(subject, part.value(place))))
        rows[place, START], rows[place, SIZE] = end, len(values[-1])
        end += len(values[-1])
    return EncodedRows(b"".join(values), rows)


def _encoded(subject: _Subject, row: bytes) -> bytes:
    try:
        return subject.encode(row)
    except PenstockError as error:
        raise YtError(SCHEMA_VIOLATION, f"the row cannot be stored with the Avro schema of its subject: {error}") from error
