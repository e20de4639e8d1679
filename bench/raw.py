"""The raw loops: what the same system calls reach with nothing around them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from bench.measure import MIB

ROLL_BYTES = 128 * MIB
ROOM_BYTES = 16 * MIB


class RawLog:
    """Files in a directory, appended to and synced in the fastest way: in pieces of 1 MiB, into preallocated room if asked."""

    def __init__(self, directory: Path, *, preallocated: bool = False, synced: bool = True) -> None:
        directory.mkdir()
        self._synced = synced
        self._directory = directory
        self._preallocated = preallocated
        self._files = 0
        self._fd = -1
        self._offset = ROLL_BYTES
        self._room = 0

    def append(self, data: bytes) -> None:
        """Append and sync; a new file begins when one is full."""
        if self._offset + len(data) > ROLL_BYTES:
            self._roll()
        if self._preallocated and self._offset + len(data) > self._room:
            self._room = self._offset + len(data) + ROOM_BYTES
            os.posix_fallocate(self._fd, 0, self._room)
        view = memoryview(data)
        for at in range(0, len(data), MIB):
            self._offset += os.pwrite(self._fd, view[at : at + MIB], self._offset)
        if self._synced:
            os.fdatasync(self._fd)

    def close(self) -> None:
        """Remove the files."""
        if self._fd >= 0:
            os.close(self._fd)
        for path in self._directory.iterdir():
            path.unlink()
        self._directory.rmdir()

    def _roll(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._files += 1
        self._fd = os.open(self._directory / str(self._files), os.O_RDWR | os.O_CREAT, 0o644)
        self._offset = self._room = 0


def append_in_threads(logs: list[RawLog], data: bytes, times: int) -> None:
    """Every log in a thread of its own."""

    def stream(log: RawLog) -> None:
        for _ in range(times):
            log.append(data)

    threads = [threading.Thread(target=stream, args=(log,)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
