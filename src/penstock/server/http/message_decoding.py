"""Messages as people read them: values that name a schema of the registry are decoded with it, others as they were asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from penstock.broker import Operation
from penstock.broker.schema_registry import DEFAULT_CONTEXT, LATEST, SchemaRegistry, SchemaValue, resource_topic
from penstock.core.errors import PenstockError
from penstock.schemas import ValueCodec, codec_of, split_frame
from penstock.server.http.caller import Caller
from penstock.server.http.kafka_internal_records import decode_internal
from penstock.server.http.payload_view import (
    FULL_BYTES_MAX,
    JSON_BYTES_MAX,
    MessageView,
    OctetsView,
    SchemaNameView,
    shown_as_hex,
    shown_as_text,
    shown_message,
    shown_octets,
)
from penstock.server.http.route import RequestModel
from penstock.server.http.stored_records import Record

KEPT_MAX: Final = 200  # codecs
IDS_MAX: Final = 50  # schemas that the messages of one answer are decoded with
_FIRST_MESSAGE: Final = b"\0"

Decoder = Literal["auto", "json", "text", "hex", "msgpack", "avro", "protobuf", "kafka-internal"]
_Decoder = Annotated[
    Decoder,
    msgspec.Meta(
        description="how bytes are shown: auto is by the schema that they name, else JSON, text or hex; avro and protobuf are by "
        "the schema that is given; kafka-internal is for copies of __consumer_offsets and __transaction_state"
    ),
]


class DecodingQuery(RequestModel, frozen=True, kw_only=True):
    """How keys and values are shown."""

    decoder: _Decoder = "auto"
    key_decoder: _Decoder = "auto"
    schema: Annotated[str, msgspec.Meta(max_length=1000, description="a subject, for avro and protobuf")] = ""
    schema_version: Annotated[int, msgspec.Meta(ge=-1, description="its version; -1 is the latest")] = LATEST


class NamedCodec(NamedTuple):
    """A codec, and what its schema is called."""

    name: SchemaNameView
    codec: ValueCodec


class MessageDecoding:
    """Decodes messages with schemas of the registry, and keeps codecs of those used lately."""

    def __init__(self, registry: SchemaRegistry | None) -> None:
        self._registry = registry
        self._kept: dict[SchemaNameView, NamedCodec] = {}

    async def views(
        self, records: Sequence[Record], query: DecodingQuery, caller: Caller, topic: str, *, full: bool = False
    ) -> list[MessageView]:
        """The messages as they are shown to a caller who may read their topic."""
        given = await self._given(query, caller)
        by_id: dict[int, NamedCodec] = {}
        for schema_id in _ids_of(records):
            codec = await self._with_id(schema_id, caller, topic)
            if codec is not None:
                by_id[schema_id] = codec
        view = _View(query, given, by_id, full)
        if not by_id and given is None:
            return [view.of(record) for record in records]
        return await asyncio.to_thread(lambda: [view.of(record) for record in records])

    async def _given(self, query: DecodingQuery, caller: Caller) -> NamedCodec | None:
        """The codec of the schema that the query names."""
        if not query.schema or self._registry is None:
            return None
        caller.check_topic(Operation.DESCRIBE, resource_topic(query.schema))
        return await self._codec(await self._registry.version(query.schema, query.schema_version))

    async def _with_id(self, schema_id: int, caller: Caller, topic: str) -> NamedCodec | None:
        """The codec of the schema with an id; None if there is none that the caller may see. It is called by the subject of the
        topic if that has it."""
        if self._registry is None:
            return None
        try:
            state = await self._registry.state()
            users = [
                (subject, number)
                for subject, number, _ in state.versions_of_id(DEFAULT_CONTEXT, schema_id, deleted=True)
                if caller.may_topic(Operation.DESCRIBE, resource_topic(subject))
            ]
            if not users:
                return None
            subject, number = next((user for user in users if resource_topic(user[0]) == topic), users[0])
            return await self._codec(await self._registry.version(subject, number, deleted=True))
        except PenstockError:
            return None  # the messages are shown as they are while the registry cannot be read, or the schema not be compiled

    async def _codec(self, value: SchemaValue) -> NamedCodec:
        assert self._registry is not None
        name = SchemaNameView(id=value.id, subject=value.subject, version=value.version, type=value.schema_type)
        kept = self._kept.get(name)
        if kept is None:
            schema = await self._registry.parsed(value)
            kept = NamedCodec(name, await asyncio.to_thread(codec_of, schema))
            self._kept[name] = kept
            while len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]
        return kept


class _View(NamedTuple):
    """How the messages of an answer are shown."""

    query: DecodingQuery
    given: NamedCodec | None
    by_id: Mapping[int, NamedCodec]
    full: bool

    def of(self, record: Record) -> MessageView:
        """One message."""
        if self.query.decoder == "kafka-internal":
            return self._internal(record)
        key, value = self._octets(record.key, self.query.key_decoder), self._octets(record.value, self.query.decoder)
        return shown_message(record, key, value, full=self.full)

    def _internal(self, record: Record) -> MessageView:
        """One message of an internal topic of Kafka, whose value is read by its key."""
        raw_key, raw_value = record.key or b"", record.value
        key = _decoded(raw_key, lambda: decode_internal(raw_key, None)[0], None, full=self.full)
        value = shown_octets(None)
        if raw_value is not None:
            value = _decoded(raw_value, lambda: decode_internal(raw_key, raw_value)[1], None, full=self.full)
        return shown_message(record, key, value, full=self.full)

    def _octets(self, raw: bytes | None, decoder: Decoder) -> OctetsView:
        if raw is None or len(raw) > (FULL_BYTES_MAX if self.full else JSON_BYTES_MAX):
            return shown_octets(raw, full=self.full)
        if decoder == "hex":
            return shown_as_hex(raw, full=self.full)
        if decoder == "text":
            return shown_as_text(raw, full=self.full)
        if decoder == "json":
            return _decoded(raw, lambda: json.loads(raw), None, full=self.full)
        if decoder == "msgpack":
            return _decoded(raw, lambda: msgspec.msgpack.decode(raw), None, full=self.full)
        frame = split_frame(raw)
        named = self.by_id.get(frame[0]) if frame is not None else None
        if decoder != "auto" and self.given is not None:
            payload = frame[1] if frame is not None and named is not None else _unframed(raw, self.given.name.type)
            return _decoded(raw, lambda: self._decode(self.given, payload), self.given.name, full=self.full)
        if named is None or frame is None:
            return shown_octets(raw, full=self.full)
        payload = frame[1]
        return _decoded(raw, lambda: self._decode(named, payload), named.name, full=self.full)

    @staticmethod
    def _decode(named: NamedCodec | None, payload: bytes) -> Any:
        return None if named is None else named.codec.decode(payload)


def _decoded(raw: bytes, decode: Any, name: SchemaNameView | None, *, full: bool) -> OctetsView:
    """What a decoder makes of some bytes; the bytes, and why, if it cannot."""
    try:
        data = msgspec.Raw(json.dumps(_finite(decode()), default=_plain, allow_nan=False).encode())
    except (PenstockError, ValueError, TypeError, RecursionError, msgspec.DecodeError) as error:
        problem = str(error)[:500] or type(error).__name__
        return msgspec.structs.replace(shown_as_hex(raw, full=full), schema=name, problem=problem)
    return OctetsView(kind="json", data=data, truncated=False, size=len(raw), schema=name)


def _unframed(raw: bytes, kind: str) -> bytes:
    """A value without a frame as a payload: of Protobuf it is the first message of the schema."""
    return _FIRST_MESSAGE + raw if kind == "PROTOBUF" else raw


def _ids_of(records: Sequence[Record]) -> list[int]:
    """The schemas that some messages name."""
    frames = (split_frame(raw) for record in records for raw in (record.key, record.value) if raw is not None)
    return list(dict.fromkeys(frame[0] for frame in frames if frame is not None))[:IDS_MAX]


def _finite(value: Any) -> Any:
    """A value of JSON, with what it has no number for as text."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {_key(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _key(key: Any) -> str:
    return key if isinstance(key, str) else _plain(key)


def _plain(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
