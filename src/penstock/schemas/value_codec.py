"""Values of topics with schemas, in the framing of Confluent's serializers, from and to what JSON can say.

     0 | id of the schema, 4 bytes | payload

The payload of Protobuf begins with the place of the message in its file: the number of indexes and each of them, as zigzag
varints, or a single 0 for the first message.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.core.errors import CorruptionError
from penstock.core.varint import read_varint
from penstock.schemas.avro_schema import AvroSchema
from penstock.schemas.avro_text import AvroWriter
from penstock.schemas.errors import MissingLibraryError
from penstock.schemas.schema import Schema

if TYPE_CHECKING:
    from penstock.schemas.json_schema import JsonSchema
    from penstock.schemas.protobuf_schema import ProtobufSchema

FRAME_SIZE: Final = 5
INDEXES_MAX: Final = 100


class UnreadableValueError(CorruptionError):
    """A value does not match its schema."""

    code = "unreadable_value"


class ValueCodec(NamedTuple):
    """Turns payloads into JSON values and back. Both raise UnreadableValueError."""

    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes]


def split_frame(raw: bytes) -> tuple[int, bytes] | None:
    """The id of the schema and the payload of a value; None if it is not framed."""
    if len(raw) < FRAME_SIZE or raw[0]:
        return None
    return int.from_bytes(raw[1:FRAME_SIZE], "big"), raw[FRAME_SIZE:]


def framed_value(schema_id: int, payload: bytes) -> bytes:
    """A payload with the id of its schema."""
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def codec_of(schema: Schema) -> ValueCodec:
    """The codec of a schema. MissingLibraryError if it needs what is not installed."""
    try:
        return _CODECS[schema.kind](schema)
    except ModuleNotFoundError as error:
        raise MissingLibraryError(
            f"values of type {schema.kind} need {error.name}; install Penstock with its schemas extra"
        ) from error


def _avro(schema: AvroSchema) -> ValueCodec:
    import fastavro

    # The whole schema in one text, with the types of its references.
    parsed = fastavro.parse_schema(AvroWriter(frozenset()).json_of(schema.root))

    def decode(payload: bytes) -> Any:
        source = io.BytesIO(payload)
        try:
            value = fastavro.schemaless_reader(source, parsed, None)
        except Exception as error:
            raise UnreadableValueError(f"the value does not match its Avro schema: {error!r}") from error
        if source.read(1):
            raise UnreadableValueError("the value is longer than its Avro schema says")
        return json.loads(json.dumps(value, default=_plain))

    def encode(value: Any) -> bytes:
        sink = io.BytesIO()
        try:
            fastavro.schemaless_writer(sink, parsed, value, strict_allow_default=True)
        except Exception as error:
            raise UnreadableValueError(f"the value does not match the Avro schema: {error}") from error
        return sink.getvalue()

    return ValueCodec(decode, encode)


def _json(schema: JsonSchema) -> ValueCodec:
    import jsonschema_rs

    validator: Any = None

    def decode(payload: bytes) -> Any:
        try:
            return json.loads(payload)
        except ValueError as error:
            raise UnreadableValueError(f"the value is not JSON: {error}") from error

    def encode(value: Any) -> bytes:
        nonlocal validator
        if validator is None:
            validator = jsonschema_rs.validator_for(schema.root, retriever=schema.retrieve)
        try:
            validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            place = "/".join(map(str, error.instance_path))
            raise UnreadableValueError(f"the value does not match the JSON Schema at /{place}: {error.message[:300]}") from error
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    return ValueCodec(decode, encode)


def _protobuf(schema: ProtobufSchema) -> ValueCodec:
    from google.protobuf import json_format, message_factory
    from google.protobuf.message import DecodeError

    file = schema.linked_file()

    def message_at(indexes: list[int]) -> Any:
        messages = list(file.message_types_by_name.values())
        found = None
        for index in indexes:
            if not 0 <= index < len(messages):
                raise UnreadableValueError(f"there is no message at {indexes} of the Protobuf schema")
            found = messages[index]
            messages = list(found.nested_types)
        return message_factory.GetMessageClass(found)

    def decode(payload: bytes) -> Any:
        try:
            indexes, at = _indexes(payload)
            message = message_at(indexes).FromString(payload[at:])
            return json_format.MessageToDict(message, preserving_proto_field_name=True)
        except (DecodeError, IndexError) as error:
            raise UnreadableValueError(f"the value does not match its Protobuf schema: {error}") from error

    def encode(value: Any) -> bytes:
        try:
            return b"\0" + bytes(json_format.ParseDict(value, message_at([0])()).SerializeToString())
        except (json_format.ParseError, AttributeError, TypeError) as error:
            raise UnreadableValueError(f"the value does not match the Protobuf schema: {error}") from error

    return ValueCodec(decode, encode)


def _indexes(payload: bytes) -> tuple[list[int], int]:
    """The place of a message in its file, and where the message begins."""
    count, at = read_varint(payload, 0)
    if count == 0:
        return [0], at
    if not 0 < count <= INDEXES_MAX:
        raise UnreadableValueError("the value does not begin with the indexes of a message")
    indexes: list[int] = []
    for _ in range(count):
        index, at = read_varint(payload, at)
        indexes.append(index)
    return indexes, at


def _plain(value: Any) -> Any:
    """What JSON cannot say, as Avro's JSON encoding has it or as people write it."""
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


_CODECS: Final[dict[str, Callable[[Any], ValueCodec]]] = {"AVRO": _avro, "JSON": _json, "PROTOBUF": _protobuf}
