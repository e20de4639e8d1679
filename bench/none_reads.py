"""Reads of 8 MiB blobs from a `none` group, against pread and sendfile of the same ranges."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from bench.groups import open_group, start_tablet
from bench.measure import MIB, Duel, Row, Setting, bytes_rate
from bench.none_puts import Puts
from penstock.blob import BlobId, Erasure, FilePiece, GroupProxy, Status
from penstock.core.checksum import crc32c

TABLET = 1
SIZE = 8 * MIB
BLOBS = 8


async def rows(setting: Setting) -> list[Row]:
    """From the memory of the system, where the cost of the way shows most, and from the disk."""
    directory = setting.directory("none-reads")
    found: list[Row] = []
    async with open_group(Erasure.NONE, directory) as life:
        await start_tablet(life.proxy, TABLET)
        await Puts(life.proxy).run(os.urandom(SIZE), BLOBS * SIZE, 1)
        blobs = [BlobId(TABLET, 0, 1, step, 0, SIZE) for step in range(1, BLOBS + 1)]
        pieces = [piece_of(life.proxy, blob_id) for blob_id in blobs]
        get = partial(get_all, life.proxy, blobs)
        with drained_socket() as sink:
            duel = await Duel().run(
                setting.rounds(40), partial(send_all, sink, pieces), partial(send_blobs, sink, life.proxy, blobs)
            )
        found.append(duel.row("none: 8 MiB pieces and sendfile, against sendfile", show=bytes_rate, goal=0.85))
        duel = await Duel().run(setting.rounds(20), partial(pread_all, pieces, cold=True), partial(get, pieces))
        found.append(duel.row("none: 8 MiB get from the disk, against pread", show=bytes_rate, goal=0.85))
        duel = await Duel().run(setting.rounds(60), partial(pread_all, pieces), get)
        found.append(duel.row("none: 8 MiB get from memory, against pread", show=bytes_rate, goal=0.85))
        duel = await Duel().run(setting.rounds(60), partial(pread_all, pieces, verify=True), get)
        found.append(duel.row("none: 8 MiB get from memory, against pread and checksum", show=bytes_rate, goal=None))
    return found


def piece_of(proxy: GroupProxy, blob_id: BlobId) -> FilePiece:
    """Where a blob lies."""
    pieces = proxy.pieces(blob_id, 0, blob_id.size)
    if pieces is None:
        raise RuntimeError(f"{blob_id} is not in a file")
    return pieces[0]


def pread_all(pieces: list[FilePiece], *, cold: bool = False, verify: bool = False) -> float:
    """The raw read, of bytes that the system has in memory or has not."""
    read = 0
    for piece in pieces:
        if cold:
            forget(piece)
        data = os.pread(piece.fd, piece.length, piece.offset)
        if verify:
            crc32c(data)
        read += len(data)
        del data
    return read


async def get_all(proxy: GroupProxy, blobs: list[BlobId], cold_pieces: list[FilePiece] | None = None) -> float:
    """Our read, verified."""
    read = 0
    for number, blob_id in enumerate(blobs):
        if cold_pieces is not None:
            forget(cold_pieces[number])
        result = await proxy.get(blob_id)
        if result.status is not Status.OK:
            raise RuntimeError(f"{blob_id}: {result.status} {result.reason}")
        read += len(result.data)
        del result  # like the raw loop, which frees each blob before it reads the next
    return read


def forget(piece: FilePiece) -> None:
    """Have the system drop the range, and the record around it, from memory."""
    os.posix_fadvise(piece.fd, max(0, piece.offset - 4096), piece.length + 8192, os.POSIX_FADV_DONTNEED)


def send_all(sink: socket.socket, pieces: list[FilePiece]) -> float:
    """Blocking sendfile of all pieces."""
    for piece in pieces:
        offset, end = piece.offset, piece.offset + piece.length
        while offset < end:
            offset += os.sendfile(sink.fileno(), piece.fd, offset, end - offset)
    return sum(piece.length for piece in pieces)


async def send_blobs(sink: socket.socket, proxy: GroupProxy, blobs: list[BlobId]) -> float:
    """The same for blobs, each looked up first."""
    return sum(send_all(sink, [piece_of(proxy, blob_id)]) for blob_id in blobs)


@contextmanager
def drained_socket() -> Iterator[socket.socket]:
    """One end of a loopback connection whose other end is read and forgotten."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sink = socket.create_connection(server.getsockname())
        source, _ = server.accept()

    def drain() -> None:
        buffer = bytearray(MIB)
        while source.recv_into(buffer):
            pass

    thread = threading.Thread(target=drain)
    thread.start()
    try:
        yield sink
    finally:
        sink.close()
        thread.join()
        source.close()
