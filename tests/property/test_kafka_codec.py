"""The Kafka codecs against kio, an independent implementation, and against bytes that were damaged on the way.

Messages are drawn from their declarations by a seed that is part of the test's name, so a failure replays.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import struct
import tracemalloc
import typing
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from types import UnionType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from penstock.kafka.protocol import (
    APIS,
    ZERO_UUID,
    Api,
    Message,
    ProtocolError,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from tests.fuzz.kafka_messages import random_message

CASES = [(api.key, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)]
CLIENT = "client-ü"
REQUEST_HEAD = 4 + 10 + len(CLIENT.encode())
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

each_version = pytest.mark.parametrize(("key", "version"), CASES, ids=[f"{APIS[key].name}-v{version}" for key, version in CASES])


@each_version
def test_requests_are_written_as_kio_writes_them_and_read_back(key: int, version: int) -> None:
    schema = load_request_schema(key, version)
    for message in _examples(APIS[key].request_class, version, f"request {key} {version}"):
        frame = _request_frame(key, version, message)
        head = REQUEST_HEAD + APIS[key].is_flexible(version)
        assert frame[head:] == _kio_bytes(_to_kio(message, schema))
        request = decode_request(frame[4:])
        assert (request.api_key, request.api_version, request.correlation_id, request.client_id) == (key, version, 7, CLIENT)
        assert request.body == message


@each_version
def test_responses_are_written_as_kio_writes_them_and_read_back(key: int, version: int) -> None:
    schema = load_response_schema(key, version)
    for message in _examples(APIS[key].response_class, version, f"response {key} {version}"):
        frame = _response_frame(key, version, message)
        head = 8 + APIS[key].has_flexible_response_header(version)
        assert frame[head:] == _kio_bytes(_to_kio(message, schema))
        assert decode_response(key, version, frame[4:]) == (7, message)


@each_version
def test_defaults_are_those_of_the_protocol(key: int, version: int) -> None:
    for schema, message in (
        (load_request_schema(key, version), APIS[key].request_class()),
        (load_response_schema(key, version), APIS[key].response_class()),
    ):
        without_default = {field.name for field in dataclasses.fields(schema) if field.default is dataclasses.MISSING}
        entity = _to_kio(message, schema, only=without_default)
        assert _message_bytes(APIS[key], version, message) == _kio_bytes(entity)


@each_version
def test_declarations_agree_with_kio_on_fields_order_nulls_and_tags(key: int, version: int) -> None:
    _compare_declaration(APIS[key].request_class, load_request_schema(key, version), version)
    _compare_declaration(APIS[key].response_class, load_response_schema(key, version), version)


@each_version
def test_every_truncated_message_is_refused(key: int, version: int) -> None:
    request = _request_frame(key, version, next(_examples(APIS[key].request_class, version, f"cut {key} {version}")))[4:]
    response = _response_frame(key, version, next(_examples(APIS[key].response_class, version, f"cut {key} {version}")))[4:]
    for cut in _cuts(len(request)):
        with pytest.raises(ProtocolError):
            decode_request(request[:cut])
    for cut in _cuts(len(response)):
        with pytest.raises(ProtocolError):
            decode_response(key, version, response[:cut])


@each_version
def test_bytes_behind_a_message_are_passed_over(key: int, version: int) -> None:
    """As Kafka does: librdkafka leaves some behind a Metadata request for all topics."""
    request = _request_frame(key, version, next(_examples(APIS[key].request_class, version, f"tail {key} {version}")))[4:]
    assert decode_request(request + b"\0\0\0").body == decode_request(request).body


@each_version
def test_damaged_messages_raise_nothing_but_protocol_error(key: int, version: int) -> None:
    random = Random(f"damage {key} {version}")
    request = _request_frame(key, version, next(_examples(APIS[key].request_class, version, f"damage {key} {version}")))[4:]
    response = _response_frame(key, version, next(_examples(APIS[key].response_class, version, f"damage {key} {version}")))[4:]
    for _ in range(30):
        with suppress(ProtocolError):
            decode_request(_damaged(request, random, start=4))
        with suppress(ProtocolError):
            decode_response(key, version, _damaged(response, random, start=4))


@each_version
def test_unknown_tagged_fields_are_skipped(key: int, version: int) -> None:
    if not APIS[key].is_flexible(version):
        return
    request, response = APIS[key].request_class(), APIS[key].response_class()
    unknown = b"\x02\x63\x03abc\xff\x01\x00"
    assert decode_request(_request_frame(key, version, request)[4:-1] + unknown).body == request
    assert decode_response(key, version, _response_frame(key, version, response)[4:-1] + unknown) == (7, response)


def test_damaged_lengths_do_not_allocate() -> None:
    """Of a frame of some hundred bytes no more is ever made than a small multiple of it, whatever lengths it announces."""
    random = Random("memory")
    for key, version in CASES:
        message = next(_examples(APIS[key].request_class, version, f"memory {key} {version}"))
        frame = _request_frame(key, version, message)[4:]
        decode_request(frame)
        damaged = [_damaged(frame, random, start=4) for _ in range(5)]
        tracemalloc.start()
        try:
            for each in damaged:
                with suppress(ProtocolError):
                    decode_request(each)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 100_000 + 200 * len(frame), f"{APIS[key].name} v{version}"


@given(st.sampled_from(CASES), st.binary(max_size=300))
@settings(max_examples=2_000, deadline=None)
def test_arbitrary_bytes_raise_nothing_but_protocol_error(case: tuple[int, int], body: bytes) -> None:
    key, version = case
    with suppress(ProtocolError):
        decode_request(struct.pack(">hhih", key, version, 7, -1) + body)
    with suppress(ProtocolError):
        decode_request(body)
    with suppress(ProtocolError):
        decode_response(key, version, body)


def _request_frame(key: int, version: int, message: Message) -> bytes:
    buffers, size = encode_request(key, version, 7, CLIENT, message)
    return _joined(buffers, size)


def _response_frame(key: int, version: int, message: Message) -> bytes:
    buffers, size = encode_response(key, version, 7, message)
    return _joined(buffers, size)


def _joined(buffers: list[Any], size: int) -> bytes:
    frame = b"".join(buffers)
    assert len(frame) == size
    assert struct.unpack(">i", frame[:4]) == (size - 4,)
    return frame


def _message_bytes(api: Api, version: int, message: Message) -> bytes:
    if type(message) is api.request_class:
        return _request_frame(api.key, version, message)[REQUEST_HEAD + api.is_flexible(version) :]
    return _response_frame(api.key, version, message)[8 + api.has_flexible_response_header(version) :]


def _cuts(size: int) -> list[int]:
    """All cuts of a short message, and of a long one its head, its tail and some between."""
    return sorted({*range(min(size, 150)), *range(max(0, size - 50), size), *range(0, size, 37)})


def _damaged(frame: bytes, random: Random, start: int) -> bytes:
    damaged = bytearray(frame)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(start, max(len(damaged), start + 1))
        match random.randrange(5):
            case 0:
                damaged[at : at + 1] = bytes([random.randrange(256)])
            case 1:
                damaged[at : at + 4] = random.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\xff\xff\xff"))
            case 2:
                damaged[at : at + 1] = random.choice(
                    (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff", b"\xff\x7f", b"\x80\x00")
                )
            case 3:
                del damaged[at : at + random.randrange(1, 9)]
            case _:
                damaged[at:at] = random.randbytes(random.randrange(1, 9))
    return bytes(damaged)


def _examples(message: type[Message], version: int, seed: str) -> Iterator[Message]:
    random = Random(seed)
    for items_max in (2, 1, 3, 0, 2):
        yield random_message(message, version, random, items_max)


def _kio_bytes(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def _to_kio(message: Message, schema: Any, only: set[str] | None = None) -> Any:
    """The same message as kio would have it; fields not in `only`, and absent tagged structs, are left to kio's defaults."""
    hints = typing.get_type_hints(schema)
    values = {}
    for field in dataclasses.fields(schema):
        if only is not None and field.name not in only:
            continue
        value = getattr(message, _our_name(field))
        inner, nullable = _inner_type(hints[field.name])
        if dataclasses.is_dataclass(inner):
            if isinstance(value, list):
                value = tuple(_to_kio(item, inner) for item in value)
            elif value is not None:
                value = _to_kio(value, inner)
            elif field.metadata.get("tag") is not None:
                continue
        elif isinstance(value, list):
            value = tuple(_to_kio_primitive(item, field.metadata["kafka_type"], nullable) for item in value)
        else:
            value = _to_kio_primitive(value, field.metadata["kafka_type"], nullable)
        values[field.name] = value
    return schema(**values)


def _to_kio_primitive(value: Any, kind: str, nullable: bool) -> Any:
    match kind:
        case "uuid":
            return None if value == ZERO_UUID else UUID(bytes=value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            return None if nullable and value == -1 else EPOCH + datetime.timedelta(milliseconds=value)
        case "error_code":
            return ErrorCode(value)
    return value


def _our_name(field: dataclasses.Field[Any]) -> str:
    """kio drops the unit where it makes a time or a duration of a number."""
    kind = field.metadata.get("kafka_type", "")
    return f"{field.name}_ms" if kind.startswith(("timedelta", "datetime")) else field.name


def _inner_type(hint: Any) -> tuple[Any, bool]:
    """What a hint holds, tuples and unions with None taken off, and whether it may be None."""
    nullable = False
    if typing.get_origin(hint) in (typing.Union, UnionType):
        nullable = type(None) in typing.get_args(hint)
        hint = next(arm for arm in typing.get_args(hint) if arm is not type(None))
    if typing.get_origin(hint) is tuple:
        hint = typing.get_args(hint)[0]
    return hint, nullable


def _compare_declaration(message: type[Message], schema: Any, version: int) -> None:
    hints = typing.get_type_hints(schema)
    ours = [field for field in message.fields if version in field.versions]
    theirs = dataclasses.fields(schema)
    assert {field.name for field in ours} == {_our_name(field) for field in theirs}
    in_order = [_our_name(field) for field in theirs if field.metadata.get("tag") is None]
    assert [field.name for field in ours if field.tag is None] == in_order
    for their in theirs:
        our = next(field for field in ours if field.name == _our_name(their))
        inner, nullable = _inner_type(hints[their.name])
        if their.metadata.get("kafka_type") not in ("uuid", "datetime_i64"):
            assert our.is_nullable(version) == nullable, our.name
        assert our.tag == their.metadata.get("tag"), our.name
        if dataclasses.is_dataclass(inner):
            assert our.struct is not None
            _compare_declaration(our.struct, inner, version)
