"""HTTP/2 by hand, for clients that do not behave: frames, and headers that need not be what a library would send."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 0x1, 0x4, 0x1
TIMEOUT_S = 30.0


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def header_block(headers: Mapping[bytes, bytes]) -> bytes:
    """Headers as literals without indexing or Huffman coding."""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in headers.items())


def call_headers(path: bytes, **more: bytes) -> bytes:
    """The headers of a gRPC call."""
    fixed = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": path,
        b":authority": b"localhost",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
    }
    return header_block(fixed | {name.replace("_", "-").encode(): value for name, value in more.items()})


def _text(value: bytes) -> bytes:
    size = len(value)
    if size < 127:
        return bytes([size]) + value
    out = bytearray([127])
    size -= 127
    while size >= 128:
        out.append(size % 128 + 128)
        size //= 128
    out.append(size)
    return bytes(out) + value


class Http2Connection:
    """One connection, with the preface and empty settings sent."""

    def __init__(self, port: int, *, tls: bool = False) -> None:
        self.socket: socket.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        if tls:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            context.set_alpn_protocols(["h2"])
            self.socket = context.wrap_socket(self.socket)
        self._incoming = b""
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.socket.close()

    def send(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        """Send a frame."""
        self.socket.sendall(frame(kind, flags, stream, payload))

    def frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Kind, flags, stream and payload of each frame that comes, until the server closes the connection."""
        while True:
            while len(self._incoming) < 9 or len(self._incoming) < 9 + int.from_bytes(self._incoming[:3], "big"):
                more = self.socket.recv(1 << 16)
                if not more:
                    return
                self._incoming += more
            size = int.from_bytes(self._incoming[:3], "big")
            head, payload = self._incoming[:9], self._incoming[9 : 9 + size]
            self._incoming = self._incoming[9 + size :]
            if head[3] == SETTINGS and not head[4] & ACK:
                self.send(SETTINGS, ACK, 0)
            yield head[3], head[4], int.from_bytes(head[5:9], "big") & 0x7FFFFFFF, payload

    def answer(self, stream: int) -> bytes:
        """All headers of a stream, still encoded, up to the frame that ends it."""
        found = b""
        for kind, flags, of, payload in self.frames():
            if of == stream and kind == HEADERS:
                found += payload
            if of == stream and (kind == RST_STREAM or (kind in (HEADERS, DATA) and flags & END_STREAM)):
                return found
        raise AssertionError(f"the server closed the connection without an answer; headers so far: {found!r}")
