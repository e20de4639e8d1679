"""Frames: a size, a header, and a message, put together and taken apart.

    request:   size i32 | api key i16 | api version i16 | correlation id i32 | client id string | tagged fields | message
    response:  size i32 | correlation id i32 | tagged fields | message

The tagged fields are there in flexible versions only (request header 2, response header 1; before that 1 and 0). The client id
keeps its old two-byte length in all of them.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from penstock.kafka.protocol.decoder import Decode, compile_decoder
from penstock.kafka.protocol.encoder import Encode, compile_encoder
from penstock.kafka.protocol.fields import Message
from penstock.kafka.protocol.registry import APIS, PRIVATE_APIS, Api
from penstock.kafka.protocol.wire import ProtocolError, UnsupportedVersionError, overrun, skip_tags

Buffer = bytes | bytearray | memoryview

_SIZE: Final = struct.Struct(">i")
_PLAIN_RESPONSE_HEADER: Final = struct.Struct(">ii").pack
_FLEXIBLE_RESPONSE_HEADER: Final = struct.Struct(">iix").pack
_REQUEST_HEADER: Final = struct.Struct(">hhih")
_REQUEST_HEADER_SIZE: Final = _REQUEST_HEADER.size
_unpack_request_header: Final = _REQUEST_HEADER.unpack_from
_set_size: Final = _SIZE.pack_into

# Codecs compiled so far, by api key and version in one number, each with whether its header is flexible.
_request_decoders: dict[int, tuple[Decode, bool]] = {}
_response_encoders: dict[int, tuple[Encode, bool]] = {}
_request_encoders: dict[int, tuple[Encode, bool]] = {}
_response_decoders: dict[int, tuple[Decode, bool]] = {}


class Request:
    """A request taken apart: its header, and the message in `body`."""

    __slots__ = ("api_key", "api_version", "body", "client_id", "correlation_id")

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: Message


def decode_request(frame: Buffer) -> Request:
    """Take apart a request, given without its size. Records stay views of `frame`, which must then not change."""
    buf = frame if type(frame) is memoryview else memoryview(frame)
    try:
        api_key, version, correlation_id, length = _unpack_request_header(buf, 0)
    except struct.error as error:
        raise ProtocolError(f"a request header does not fit {len(buf)} bytes") from error
    decoder = _request_decoders.get(api_key << 16 | version)
    decode, flexible = decoder if decoder is not None else _request_decoder(api_key, version, correlation_id)
    at = _REQUEST_HEADER_SIZE
    client_id = None
    if length != -1:
        start, at = at, at + length
        if not start <= at <= len(buf):
            raise overrun("the client id", length, len(buf) - start)
        try:
            client_id = buf[start:at].tobytes().decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(f"the client id is not UTF-8: {error}") from error
    if flexible:
        at = _after_tags(buf, at)
    # Filled in place, one call less for every request there is.
    request = Request()
    request.api_key = api_key
    request.api_version = version
    request.correlation_id = correlation_id
    request.client_id = client_id
    request.body = decode(buf, at)
    return request


def encode_response(api_key: int, version: int, correlation_id: int, response: Message) -> tuple[list[Any], int]:
    """A whole frame, size prefix and header included, as buffers to be written in order, and the bytes it takes in all."""
    encoder = _response_encoders.get(api_key << 16 | version)
    encode, flexible = encoder if encoder is not None else _response_encoder(api_key, version, correlation_id)
    head = bytearray((_FLEXIBLE_RESPONSE_HEADER if flexible else _PLAIN_RESPONSE_HEADER)(0, correlation_id))
    buffers: list[Any] = []
    size = encode(response, head, buffers)
    _set_size(head, 0, size - 4)
    return buffers, size


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, request: Message
) -> tuple[list[Any], int]:
    """What a client sends: a whole frame as buffers, and the bytes it takes in all."""
    encoder = _request_encoders.get(api_key << 16 | version)
    encode, flexible = encoder if encoder is not None else _request_encoder(api_key, version, correlation_id)
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    head = bytearray(4) + _REQUEST_HEADER.pack(api_key, version, correlation_id, length) + name + bytes(flexible)
    buffers: list[Any] = []
    size = encode(request, head, buffers)
    _set_size(head, 0, size - 4)
    return buffers, size


def decode_response(api_key: int, version: int, frame: Buffer) -> tuple[int, Message]:
    """What a client receives, given without its size: the correlation id and the message."""
    buf = frame if type(frame) is memoryview else memoryview(frame)
    if len(buf) < _SIZE.size:
        raise ProtocolError(f"a response header does not fit {len(buf)} bytes")
    correlation_id: int = _SIZE.unpack_from(buf)[0]
    decoder = _response_decoders.get(api_key << 16 | version)
    decode, flexible = decoder if decoder is not None else _response_decoder(api_key, version, correlation_id)
    at = _after_tags(buf, _SIZE.size) if flexible else _SIZE.size
    return correlation_id, decode(buf, at)


def _after_tags(buf: memoryview, at: int) -> int:
    try:
        count = buf[at]
        return skip_tags(buf, at + 1, len(buf), count) if count else at + 1
    except IndexError as error:
        raise ProtocolError(f"the tagged fields of a header do not fit {len(buf)} bytes") from error


def _supported(api_key: int, version: int, correlation_id: int) -> Api:
    api = APIS.get(api_key) or PRIVATE_APIS.get(api_key)
    if api is None or not api.supports(version):
        raise UnsupportedVersionError(api_key, version, correlation_id)
    return api


def _request_decoder(api_key: int, version: int, correlation_id: int) -> tuple[Decode, bool]:
    api = _supported(api_key, version, correlation_id)
    decode = compile_decoder(api.request_class, version, api.is_flexible(version))
    return _request_decoders.setdefault(api_key << 16 | version, (decode, api.is_flexible(version)))


def _request_encoder(api_key: int, version: int, correlation_id: int) -> tuple[Encode, bool]:
    api = _supported(api_key, version, correlation_id)
    encode = compile_encoder(api.request_class, version, api.is_flexible(version))
    return _request_encoders.setdefault(api_key << 16 | version, (encode, api.is_flexible(version)))


def _response_decoder(api_key: int, version: int, correlation_id: int) -> tuple[Decode, bool]:
    api = _supported(api_key, version, correlation_id)
    decode = compile_decoder(api.response_class, version, api.is_flexible(version))
    return _response_decoders.setdefault(api_key << 16 | version, (decode, api.has_flexible_response_header(version)))


def _response_encoder(api_key: int, version: int, correlation_id: int) -> tuple[Encode, bool]:
    api = _supported(api_key, version, correlation_id)
    encode = compile_encoder(api.response_class, version, api.is_flexible(version))
    return _response_encoders.setdefault(api_key << 16 | version, (encode, api.has_flexible_response_header(version)))
