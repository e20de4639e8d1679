"""Requests of HTTP/1, right, nearly right and not at all, aimed at the paths that a port has."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

from tests.fuzz.input import NASTY, Generator, Input, damaged, ending

METHODS: Final = (b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH", b"TRACE", b"PRI", b"g\xe4t", b"")
VERSIONS: Final = (b"HTTP/1.1",) * 8 + (b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9.9", b"", b"HTTP/1.1 ")
DEEP: Final = b"[" * 5000 + b"]" * 5000
BODIES: Final = (
    b"",
    b"{}",
    b"[]",
    b"null",
    b'"text"',
    b"{",
    DEEP,
    b'{"a":' * 2000,
    b'{"value": 1e999, "n": ' + b"9" * 6000 + b"}",
    b'{"\\ud800": "\\udfff"}',
    b"\xff\xfe\0",
    b"<a=b>{c=d;}",
    b"{" * 3000,
    b"a=%00&b=%ff",
)
FIELDS: Final = (
    b"Content-Type: application/json",
    b"Content-Type: application/x-yt-yson-text",
    b"Content-Type: text/plain; charset=\xff",
    b"Content-Encoding: gzip",
    b"Content-Encoding: br",
    b"Accept: text/event-stream",
    b"Accept-Encoding: gzip;q=nan",
    b"Authorization: Basic ????",
    b"Authorization: Basic " + b"A" * 3000,
    b"Authorization: OAuth \xff",
    b"Range: bytes=5-1",
    b"Range: bytes=0-" + b"9" * 5000,
    b"Last-Event-ID: \xc2\xb2",
    b"Last-Event-ID: " + b"9" * 5000,
    b"Expect: 100-continue",
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAA\r\nSec-WebSocket-Version: 13",
    b"Connection: close, keep-alive",
    b"Origin: http://elsewhere.example",
    b"traceparent: 00-\xff-1-1",
    b"Cookie: a=" + b"b" * 4000,
    b'X-YT-Parameters: {path="//tmp/fuzzed";attributes={dynamic=%true}}',
    b"X-YT-Parameters: {path=" + b"[" * 2000,
    b"X-YT-Parameters: \x01\xff\xff\xff\xff\x7f",
    b"X-YT-Header-Format: <format=text>yson",
    b"X-YT-Input-Format: json",
    b'X-YT-Output-Format: {"$value": "nothing"}',
    b"Penstock-Header-a: \xff",
    b"Penstock-Client-Id: " + b"x" * 2000,
    b"Forged: a\r\n folded",
    b": no name",
    b"no colon",
    b"X-" + b"y" * 9000 + b": 1",
)


class Surface(NamedTuple):
    """What a port has: methods with paths, and bodies that some of them take."""

    targets: Sequence[tuple[bytes, bytes]]
    bodies: Sequence[bytes] = ()


def http1_generator(surface: Surface) -> Generator:
    """Inputs for the port of a surface."""

    def generate(random: Random) -> Input:
        match random.randrange(8):
            case 0:
                return Input(random.randbytes(random.choice((1, 10, 3000))), ending(random))
            case 1:
                whole = _request(surface, random)
                return Input(whole[: random.randrange(len(whole))], random.choice(("hold", "close", "reset")), reads=False)
            case 2:
                return Input(damaged(_request(surface, random), random), ending(random))
            case 3:
                return Input(b"".join(_request(surface, random) for _ in range(20)), ending(random), reads=False)
        return Input(_request(surface, random), ending(random))

    return generate


def _request(surface: Surface, random: Random) -> bytes:
    method, target = random.choice(surface.targets)
    if random.random() < 0.15:
        method = random.choice(METHODS)
    if random.random() < 0.3:
        target = _target(target, random)
    lines = [b"%b %b %b" % (method, target, random.choice(VERSIONS))]
    if random.random() < 0.95:
        lines.append(b"Host: 127.0.0.1")
    lines += random.sample(FIELDS, random.choice((0, 1, 1, 2, 4)))
    body = _body(surface, random)
    if body and random.random() < 0.5 and not any(line.startswith(b"Content-Type") for line in lines):
        lines.append(b"Content-Type: application/json")
    framing, sent = _framed(body, random)
    return b"\r\n".join([*lines, *framing, b"", b""]) + sent


def _target(target: bytes, random: Random) -> bytes:
    match random.randrange(6):
        case 0:
            return damaged(target, random).replace(b"\r", b"").replace(b"\n", b"") or b"/"
        case 1:
            return (
                target
                + b"?"
                + random.choice((b"limit=-1", b"from=" + b"9" * 6000, b"a=%ff&a=%", b"follow=1", b"offset=\xc2\xb2"))
            )
        case 2:
            return b"/" + b"a" * random.choice((5000, 100_000))
        case 3:
            return target.replace(b"fuzzed", random.choice((b"%00", b"..", b"%2e%2e%2f", b"\xff", b"%ff", b"a" * 300, b"")))
        case 4:
            return random.choice((b"*", b"http://elsewhere.example/", b"//", b"/../../etc/passwd", b"/%", b"\0"))
    return target + b"/%b" % random.choice(NASTY).replace(b"\r\n", b"")


def _body(surface: Surface, random: Random) -> bytes:
    if random.random() < 0.3:
        return b""
    body = random.choice((*BODIES, *surface.bodies, *surface.bodies))
    match random.randrange(6):
        case 0:
            return damaged(body, random)
        case 1:
            return gzip.compress(body, mtime=0)
        case 2:
            return gzip.compress(bytes(20 << 20), mtime=0)  # twenty kilobytes that are twenty megabytes
        case 3:
            return json.dumps({"path": "//tmp/fuzzed", "value": random.choice((1, "x", None, [], -1, 2**70))}).encode()
    return body


def _framed(body: bytes, random: Random) -> tuple[list[bytes], bytes]:
    """How a body is announced, and how it is sent."""
    match random.randrange(10):
        case 0:
            return [b"Content-Length: %d" % (len(body) + random.choice((1, 100, 1 << 40)))], body
        case 1:
            return [b"Content-Length: " + random.choice((b"-1", b"abc", b"1_0", b"+5", b"9" * 400, b"0x10"))], body
        case 2:
            return [b"Content-Length: %d" % len(body), b"Content-Length: 3"], body
        case 3:
            return [b"Content-Length: 3", b"Transfer-Encoding: chunked"], b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        case 4:
            size = random.choice((b"fffffffffffffffff", b"-1", b"zz", b"%x;ext=\xff" % len(body), b"1" * 5000))
            return [b"Transfer-Encoding: chunked"], size + b"\r\n" + body
        case 5:
            return [b"Transfer-Encoding: chunked"], b"".join(b"1\r\n%c\r\n" % byte for byte in body[:500]) + b"0\r\n\r\n"
        case 6:
            return [b"Transfer-Encoding: gzip, chunked, identity"], body
    return [b"Content-Length: %d" % len(body)], body
