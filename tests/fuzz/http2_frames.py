"""Connections of HTTP/2 to a gRPC port: frames, headers and messages that are right, nearly right and not at all; floods too."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from tests.fuzz.input import NASTY, Generator, Input, damaged, ending
from tests.http2 import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    call_headers,
    frame,
    header_block,
)

PRIORITY, PUSH_PROMISE, CONTINUATION = 2, 5, 9
PADDED, HAS_PRIORITY = 0x8, 0x20
FLOOD: Final = 500
BAD_PATHS: Final = (
    b"/\xff",
    b"\xc3\x28",
    b"",
    b"/",
    b"*",
    b"/\0",
    b"/a/b/c/d",
    b"/" + b"\x80" * 4000,
    b"/" + b"x" * 60_000,
    b"\r\n",
)
BAD_BLOCKS: Final = (
    b"\x80",  # index 0
    b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # an index beyond every table
    b"\x3f\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # a table of any size
    b"\x00\x85\xff\xff\xff\xff\xff\x01a",  # Huffman code of nothing
    b"\x40\x7f\xff\xff\xff\x7f",  # a name longer than the frame
    b"\x00\x01A\x01b",  # a name in upper case
    b"\x00\x05:path\x01/\x00\x05:path\x01/",
    b"\x00\x06:bogus\x01a",
    b"\x00\x00\x00",
    b"",
)
BAD_FIELDS: Final = (
    {"grpc_timeout": b"99999999999H"},
    {"grpc_timeout": b"-1S"},
    {"grpc_timeout": b"\xff"},
    {"grpc_encoding": b"gzip"},
    {"grpc_encoding": b"nothing"},
    {"content_type": b"application/json"},
    {"te": b"gzip"},
    {"x_ydb_auth_ticket": b"\xff\xfe"},
    {"x_ydb_auth_ticket": b"YQ.9999999999."},
    {"x_ydb_database": b"\xff"},
    {"authorization": b"Basic \xff"},
    {"penstock_client_id": b"x" * 5000},
    {"traceparent": b"\xff"},
    {"some_bin": b"!!!"},
    {"connection": b"close"},
)


def http2_generator(paths: Sequence[bytes], messages: Sequence[bytes]) -> Generator:
    """Inputs for a port that has methods at some paths, which take such messages among others."""

    def generate(random: Random) -> Input:
        preface = PREFACE + frame(SETTINGS, 0, 0)
        match random.randrange(12):
            case 0:
                return Input(random.choice((random.randbytes(500), damaged(preface, random), PREFACE[:10])), ending(random))
            case 1:
                return Input(preface + _flood(paths, random), ending(random))
            case 2:
                return Input(preface + _settings(random), ending(random))
            case 3:
                return Input(preface + _bad_headers(paths, random), ending(random))
            case 4:
                return Input(preface + _odd_frames(random), ending(random))
            case 5:
                # Streams that are begun and never ended.
                opened = [frame(HEADERS, END_HEADERS, 2 * at + 1, call_headers(random.choice(paths))) for at in range(60)]
                return Input(preface + b"".join(opened), "hold", reads=False)
            case 6:
                return Input(preface + damaged(_call(1, paths, messages, random), random), ending(random))
        calls = [_call(2 * at + 1, paths, messages, random) for at in range(random.choice((1, 1, 5)))]
        return Input(preface + b"".join(calls), ending(random))

    return generate


def _call(stream: int, paths: Sequence[bytes], messages: Sequence[bytes], random: Random) -> bytes:
    """A call with a few messages, in the framing of gRPC."""
    fields = random.choice(BAD_FIELDS) if random.random() < 0.3 else {}
    path = random.choice(BAD_PATHS) if random.random() < 0.1 else random.choice(paths)
    sent = frame(HEADERS, END_HEADERS, stream, call_headers(path, **fields)[:16_000])
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        message = random.choice((*messages, b"", random.randbytes(30), b"\xff" * 20, b"\x0a" * 3000, b"\x12\xff\xff\xff\xff\x0f"))
        if random.random() < 0.3:
            message = damaged(message, random)
        size = len(message) if random.random() < 0.9 else random.choice((0, 0xFFFFFFFF, 1 << 28, len(message) + 5))
        compressed = random.choice((0, 0, 0, 0, 1, 255))
        sent += frame(DATA, 0, stream, (bytes([compressed]) + size.to_bytes(4, "big") + message)[:16_000])
    return sent + (frame(DATA, END_STREAM, stream) if random.random() < 0.8 else b"")


def _flood(paths: Sequence[bytes], random: Random) -> bytes:
    match random.randrange(6):
        case 0:
            return frame(PING, 0, 0, bytes(8)) * FLOOD
        case 1:
            return frame(SETTINGS, 0, 0, b"\0\4\0\0\xff\xff") * FLOOD
        case 2:  # a rapid reset
            block = call_headers(random.choice(paths))
            each = (
                frame(HEADERS, END_HEADERS, 2 * at + 1, block) + frame(RST_STREAM, 0, 2 * at + 1, b"\0\0\0\x08")
                for at in range(FLOOD)
            )
            return b"".join(each)
        case 3:
            return frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1") * FLOOD
        case 4:
            return frame(HEADERS, 0, 1, call_headers(b"/a")) + frame(CONTINUATION, 0, 1, header_block({b"a": b"b" * 900})) * 300
    return frame(DATA, 0, 1) * FLOOD + frame(PRIORITY, 0, 1, bytes(5)) * FLOOD


def _settings(random: Random) -> bytes:
    pairs = [(4, 0xFFFFFFFF), (4, 0), (5, 0), (5, 0xFFFFFFFF), (2, 7), (1, 0xFFFFFFFF), (6, 0), (3, 0), (99, 1)]
    chosen = random.sample(pairs, random.randrange(1, len(pairs)))
    payload = b"".join(number.to_bytes(2, "big") + value.to_bytes(4, "big") for number, value in chosen)
    flags, stream = random.choice(((0, 0), (ACK, 0), (0, 1), (0xFF, 0)))
    return frame(SETTINGS, flags, stream, payload[: len(payload) - random.choice((0, 0, 1))])


def _bad_headers(paths: Sequence[bytes], random: Random) -> bytes:
    stream = random.choice((0, 1, 1, 1, 2, 0x7FFFFFFF))
    flags = random.choice((END_HEADERS, END_HEADERS | END_STREAM, 0, END_HEADERS | PADDED, END_HEADERS | HAS_PRIORITY, 0xFF))
    match random.randrange(3):
        case 0:
            block = random.choice(BAD_BLOCKS)
        case 1:
            block = call_headers(random.choice(BAD_PATHS))
        case _:
            block = damaged(call_headers(random.choice(paths)), random)
    return frame(HEADERS, flags, stream, block) + frame(DATA, END_STREAM, stream, bytes(5))


def _odd_frames(random: Random) -> bytes:
    made = b""
    for _ in range(random.choice((1, 3, 10))):
        kind = random.choice(
            (DATA, HEADERS, PRIORITY, RST_STREAM, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION, 0x20, 0xFF)
        )
        payload = random.choice((*NASTY, bytes(4), bytes(8), random.randbytes(random.choice((1, 9, 200)))))
        made += frame(kind, random.randrange(256), random.choice((0, 1, 3, 0x7FFFFFFF, 0xFFFFFFFF)), payload)
    return made if random.random() < 0.7 else made + b"\xff\xff\xff" + bytes(20)  # a frame of 16 MB that does not come
