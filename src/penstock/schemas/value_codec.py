"""Values of topics with schemas, in the framing of Confluent's serializers, from and to what JSON can say.

0 | id of the schema, 4 bytes | payload
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.schemas.avro_schema import AvroSchema
from penstock.schemas.errors import MissingLibraryError, UnreadableValueError
from penstock.schemas.schema import Schema

if TYPE_CHECKING:
    from penstock.schemas.json_schema import JsonSchema
    from penstock.schemas.protobuf_schema import ProtobufSchema

FRAME_SIZE: Final = 5


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


def whole_avro_text(schema: Schema) -> str:
    """The text of an Avro schema with the types of its references."""
    assert isinstance(schema, AvroSchema), "it is of Avro"
    return schema.whole_text()


def _avro(schema: AvroSchema) -> ValueCodec:
    import fastavro

    parsed = fastavro.parse_schema(json.loads(schema.whole_text()))

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
    from penstock.schemas.json_payload import JsonPayload

    payload_of = JsonPayload(schema)

    def decode(payload: bytes) -> Any:
        try:
            return json.loads(payload)
        except ValueError as error:
            raise UnreadableValueError(f"the value is not JSON: {error}") from error

    def encode(value: Any) -> bytes:
        payload_of.check_value(value)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    return ValueCodec(decode, encode)


def _protobuf(schema: ProtobufSchema) -> ValueCodec:
    from google.protobuf import json_format

    from penstock.schemas.protobuf_payload import ProtobufPayload

    payload_of = ProtobufPayload(schema)

    def decode(payload: bytes) -> Any:
        return json_format.MessageToDict(payload_of.message(payload), preserving_proto_field_name=True)

    def encode(value: Any) -> bytes:
        try:
            return b"\0" + bytes(json_format.ParseDict(value, payload_of.message_class((0,))()).SerializeToString())
        except (json_format.ParseError, AttributeError, TypeError) as error:
            raise UnreadableValueError(f"the value does not match the Protobuf schema: {error}") from error

    return ValueCodec(decode, encode)


def _plain(value: Any) -> Any:
    """What JSON cannot say, as Avro's JSON encoding has it or as people write it."""
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


_CODECS: Final[dict[str, Callable[[Any], ValueCodec]]] = {"AVRO": _avro, "JSON": _json, "PROTOBUF": _protobuf}
