"""`python -m bench.kafka_peer.floor_broker PORT none|inline LOG`: the least that a broker in plain Python does for a produce.

It parses the request by hand, checks the batch's checksum, and writes all that came in one turn of the event loop to one log with
one call, then syncs it if it is told to, and answers. It has any topic that it is asked for, keeps nothing in memory, recovers
nothing and reads nothing back. What Penstock takes beyond it is the price of all that; what it takes itself is Python, the event
loop, the kernel and the client.
"""

from __future__ import annotations

import asyncio
import os
import sys
from struct import Struct
from typing import cast

import uvloop
from crc32c import crc32c

PARTITIONS = 12
BUFFER_BYTES = 128 << 10
SET_ASIDE_BYTES = 1 << 30
PRODUCE, METADATA, API_VERSIONS = 0, 3, 18
UNSUPPORTED_VERSION = 35
# Api key, oldest and newest version. Clients look for Fetch and ListOffsets as well before they trust a broker.
SERVED = ((PRODUCE, 9, 9), (1, 4, 4), (2, 1, 1), (METADATA, 4, 4), (API_VERSIONS, 0, 0))

HEADER = Struct(">hhi")  # api key, version, correlation id
SHORT = Struct(">h")
INT = Struct(">i")
PARTITION_METADATA = Struct(">hiiiiii")  # error, index, leader, one replica, one of them in sync
PRODUCED = Struct(">ihqqq")  # index, error, base offset, append time, log start offset
# Errors of single records, error message, tags of the partition, tags of the topic, throttle time, tags.
PRODUCED_END = b"\1\0\0\0" + bytes(4) + b"\0"
CRC_AT, CHECKED_FROM, COUNT_AT, COUNT_END = 17, 21, 57, 61


class Log:
    """One file for everything; what gathers in a turn goes out at its end."""

    def __init__(self, path: str, *, is_synced: bool) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        self._is_synced = is_synced
        if is_synced:
            os.posix_fallocate(self._fd, 0, SET_ASIDE_BYTES)
        self._end = 0
        self._waiting: list[tuple[asyncio.Transport, bytes, bytes]] = []
        self._loop = asyncio.get_running_loop()
        self.offsets = [0] * PARTITIONS  # the next of each partition, whatever its topic

    def append(self, transport: asyncio.Transport, batch: bytes, reply: bytes) -> None:
        """Write a batch, then send this reply."""
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append((transport, batch, reply))

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._end += os.pwritev(self._fd, [batch for _, batch, _ in waiting], self._end)
        if self._is_synced:
            os.fdatasync(self._fd)
        for transport, _, reply in waiting:
            transport.write(reply)


class FloorConnection(asyncio.BufferedProtocol):
    """One client. Its requests are taken to be right: a produce has one batch for one partition."""

    def __init__(self, log: Log, port: int) -> None:
        self._log = log
        self._port = port
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own is none by its class

    def get_buffer(self, sizehint: int) -> memoryview:
        """The free part of the buffer."""
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Serve all whole requests."""
        self._filled += nbytes
        begin = 0
        while self._filled - begin >= INT.size:
            (size,) = INT.unpack_from(self._buffer, begin)
            if self._filled - begin - INT.size < size:
                break
            self._serve(begin + INT.size)
            begin += INT.size + size
        if begin:
            self._buffer[: self._filled - begin] = self._buffer[begin : self._filled]
            self._filled -= begin

    def _serve(self, at: int) -> None:
        key, version, correlation = HEADER.unpack_from(self._buffer, at)
        (client_size,) = SHORT.unpack_from(self._buffer, at + HEADER.size)
        at += HEADER.size + SHORT.size + max(client_size, 0)
        if key == PRODUCE:
            self._produce(at, correlation)
        elif key == METADATA:
            self._transport.write(_frame(correlation, self._metadata(at)))
        elif key == API_VERSIONS:
            served = INT.pack(len(SERVED)) + b"".join(SHORT.pack(number) for api in SERVED for number in api)
            self._transport.write(_frame(correlation, SHORT.pack(UNSUPPORTED_VERSION if version else 0) + served))
        else:
            raise RuntimeError(f"the floor serves no api key {key}")

    def _produce(self, at: int, correlation: int) -> None:
        buffer = self._buffer
        at += 1 + 1 + 2 + 4 + 1  # tags, no transactional id, acks, timeout, one topic
        name_end = at + buffer[at]  # its length is one more than that of the name behind it
        name = buffer[at:name_end]
        (partition,) = INT.unpack_from(buffer, name_end + 1)
        at = name_end + 1 + INT.size
        size = shift = 0
        while buffer[at] >= 0x80:
            size |= (buffer[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
        size |= buffer[at] << shift
        batch = bytes(self._view[at + 1 : at + size])
        if crc32c(batch[CHECKED_FROM:]) != int.from_bytes(batch[CRC_AT:CHECKED_FROM], "big"):
            raise RuntimeError("a batch does not match its checksum")
        offset = self._log.offsets[partition]
        self._log.offsets[partition] += int.from_bytes(batch[COUNT_AT:COUNT_END], "big")
        body = b"\0\2" + name + b"\2" + PRODUCED.pack(partition, 0, offset, -1, 0) + PRODUCED_END
        self._log.append(self._transport, batch, _frame(correlation, body))

    def _metadata(self, at: int) -> bytes:
        """One broker, and every topic that was asked for."""
        (count,) = INT.unpack_from(self._buffer, at)
        at += INT.size
        partitions = b"".join(PARTITION_METADATA.pack(0, number, 1, 1, 1, 1, 1) for number in range(PARTITIONS))
        topics = b""
        for _ in range(max(count, 0)):
            end = at + SHORT.size + SHORT.unpack_from(self._buffer, at)[0]
            topics += SHORT.pack(0) + self._buffer[at:end] + b"\0" + INT.pack(PARTITIONS) + partitions
            at = end
        host = b"127.0.0.1"
        broker = INT.pack(1) + INT.pack(1) + SHORT.pack(len(host)) + host + INT.pack(self._port) + SHORT.pack(-1)
        return INT.pack(0) + broker + SHORT.pack(-1) + INT.pack(1) + INT.pack(max(count, 0)) + topics


def _frame(correlation: int, body: bytes) -> bytes:
    return INT.pack(INT.size + len(body)) + INT.pack(correlation) + body


async def serve(port: int, sync: str, path: str) -> None:
    """Serve until it is ended."""
    log = Log(path, is_synced=sync == "inline")
    server = await asyncio.get_running_loop().create_server(lambda: FloorConnection(log, port), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
