"""The interface a VDisk needs of its disk: named append-only files, and nothing else.

Small on purpose: a local directory, a simulated disk with faults and an object store (one PUT a flush) all fit behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Room on the disk, in bytes; `device` tells apart the file systems that several disks may share."""

    total: int
    free: int
    device: int = -1


@dataclass(frozen=True, slots=True)
class FilePiece:
    """A range of an open local file, ready for `os.sendfile`. The file stays open while `holder` is referenced."""

    fd: int
    offset: int
    length: int
    holder: object


class Disk(Protocol):
    """Append-only files by name. Failures are `OSError`; `ENOSPC` means full and nothing else is wrong.

    Every call has a deadline: a disk that hangs answers `ETIMEDOUT`, and at once while it hangs on. A file is created by its
    first append, and is written by one opening of the disk only. Bytes are readable once a flush that covers them has returned;
    what was appended after the last good flush may be whole, torn or absent after a crash. After a failed flush the file's tail
    is unknown: the owner goes on in another file.
    """

    @property
    def outlives_power_loss(self) -> bool:
        """Whether what a good flush has covered is there after a loss of power, and not only after the end of the process."""
        ...

    @property
    def boot(self) -> int:
        """A number above 0 that tells this start of the machine from all others."""
        ...

    async def files(self) -> dict[str, int]:
        """Every file with the bytes it holds, including preallocated zeros at its end."""
        ...

    def reserve(self, name: str, length: int) -> None:
        """Tell that a file will grow to about `length` bytes, so that room can be set aside at its next flush. The file may
        then end in zeros. A reservation of 0 completes the file: the next flush is its last, and gives back what is not used."""
        ...

    def append(self, name: str, buffers: Sequence[Buffer], finish: Sequence[Callable[[], None]] = ()) -> None:
        """Queue bytes for the end of a file. Does no I/O; the buffers must not change until the next flush returns, but for
        what `finish` still has to fill in: each is called once before they are written, in another thread if the disk has one."""
        ...

    async def flush(self, name: str) -> None:
        """Write what was appended to the file so far and make it durable. One flush of a file at a time."""
        ...

    def flush_at_once(self, name: str) -> bool:
        """Do what `flush` does before this returns, if the disk is quick enough for that. Returns False, and does nothing,
        if it is not: then call `flush`. Fails as that does."""
        ...

    async def read(self, name: str, offset: int, length: int) -> bytes:
        """Bytes of a range; fewer if the file ends before it does."""
        ...

    def read_at_hand(self, name: str, offset: int, length: int) -> bytes | None:
        """The same bytes if they can be had without waiting; None if `read` must fetch them. Fails as that does."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a file. Deleting one that does not exist is not an error."""
        ...

    async def space(self) -> DiskSpace:
        """Room left."""
        ...

    async def check(self) -> None:
        """Raise FileNotFoundError if the files that are open here are no longer where others would look for them."""
        ...

    def piece(self, name: str, offset: int, length: int) -> FilePiece | None:
        """The range as a piece of an open file, where the disk has such a thing."""
        ...

    async def close(self) -> None:
        """Close files and give up locks; a disk that hangs keeps its lock until the process ends."""
        ...
