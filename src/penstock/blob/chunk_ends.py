"""How far each chunk of the log is known to be written, kept beside the log, which cannot tell that its own end is missing.

A file of records of 32 bytes, one for each time that an end was noted (integers big-endian):

     0      4   5    6      8        12       16       24     28       32
     +------+---+----+------+--------+--------+--------+------+--------+
     |magic |ver|kind|zero  |chunk   |end     |boot    |zero  |crc32c  |
     |"PENe"|1  |    |      |number  |in bytes|        |      |        |
     +------+---+----+------+--------+--------+--------+------+--------+

     END    so many bytes of the chunk were written and acknowledged
     WHOLE  the records before it are all that was known when the file was begun; without it the file does not count

*Boot* is 0 if they were synced. Otherwise they are certain to be there only until the machine reboots, and it is a number
drawn by its kernel at boot. An opening of the disk begins a file of its own, and then deletes older ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from struct import Struct

from penstock.blob.disk import Disk
from penstock.core.checksum import crc32c

MAGIC = b"PENe"
VERSION = 1
SUFFIX = ".ends"
FILE_BYTES_MAX = 1 << 20
END, WHOLE = 1, 2

_RECORD = Struct(">4sBB2xIIQ4x")
_CRC = Struct(">I")
_SIZE = _RECORD.size + _CRC.size

Ends = dict[int, int]
"""By chunk, how many bytes of it must be there."""


def ends_name(number: int) -> str:
    """The file with this number."""
    return f"{number:08d}{SUFFIX}"


async def load_ends(disk: Disk, files: dict[str, int]) -> tuple[int, Ends]:
    """The number of the newest file, and the ends that still hold by what it and the ones before it say."""
    numbers = _numbers(files)
    for number in reversed(numbers):
        raw = await disk.read(ends_name(number), 0, files[ends_name(number)])
        records = list(_records(raw))
        if any(kind == WHOLE for kind, *_ in records):
            known: Ends = {}
            for kind, chunk, end, boot in records:
                if kind == END and boot in (0, disk.boot):
                    known[chunk] = max(known.get(chunk, 0), end)
            return numbers[-1], known
    return max(numbers, default=0), {}


class ChunkEnds:
    """Notes the ends of chunks in the files of one opening of a disk."""

    def __init__(self, disk: Disk, number: int, known: Ends) -> None:
        self._disk = disk
        self._number = number  # of the last file that there is, of whichever opening
        self._written = 0  # bytes of the file of this opening; 0 if none is begun
        self._is_stale = False  # whether the newest file says more than is known
        self.known = known

    async def note(self, ends: Ends) -> None:
        """Record ends that are not known yet. After an OSError the next call starts a new file."""
        news = {chunk: end for chunk, end in ends.items() if self.known.get(chunk, 0) < end}
        if not news and not self._is_stale:
            return
        boot = 0 if self._disk.outlives_power_loss else self._disk.boot
        if 0 < self._written < FILE_BYTES_MAX:
            await self._write([pack_end(END, chunk, end, boot) for chunk, end in news.items()])
            self.known.update(news)
            return
        self._number += 1
        self._written = 0
        whole = {**self.known, **news}
        await self._write([*(pack_end(END, chunk, end, boot) for chunk, end in whole.items()), pack_end(WHOLE, 0, 0, boot)])
        self.known = whole
        self._is_stale = False
        for old in _numbers(await self._disk.files()):
            if old < self._number:
                await self._disk.delete(ends_name(old))

    async def close(self, ends: Ends) -> None:
        """Note the last ends; without them the next opening only knows less."""
        with suppress(OSError):
            await self.note(ends)

    def forget(self, chunks: Iterable[int]) -> None:
        """These chunks are known to be lost, and need not be missed again: the next file does without them."""
        self.known = {number: end for number, end in self.known.items() if number not in set(chunks)}
        self._written = 0
        self._is_stale = True

    def forget_before(self, chunk: int) -> None:
        """The log up to this chunk is in a checkpoint: where it ends matters no more."""
        if any(number < chunk for number in self.known):
            self.known = {number: end for number, end in self.known.items() if number >= chunk}

    async def _write(self, records: list[bytes]) -> None:
        written, self._written = self._written, 0
        self._disk.append(ends_name(self._number), records)
        await self._disk.flush(ends_name(self._number))
        self._written = written + len(records) * _SIZE


def pack_end(kind: int, chunk: int, end: int, boot: int) -> bytes:
    """The stored form of a record."""
    head = _RECORD.pack(MAGIC, VERSION, kind, chunk, end, boot)
    return head + _CRC.pack(crc32c(head))


def _records(raw: bytes) -> Iterable[tuple[int, int, int, int]]:
    for at in range(0, len(raw) - _SIZE + 1, _SIZE):
        magic, version, kind, chunk, end, boot = _RECORD.unpack_from(raw, at)
        if (magic, version) != (MAGIC, VERSION) or _CRC.unpack_from(raw, at + _RECORD.size)[0] != crc32c(
            raw[at : at + _RECORD.size]
        ):
            return  # the tail of a write that a crash cut short, or of a version that knows more
        yield kind, chunk, end, boot


def _numbers(files: Iterable[str]) -> list[int]:
    return sorted(int(name.removesuffix(SUFFIX)) for name in files if _is_ours(name))


def _is_ours(name: str) -> bool:
    stem = name.removesuffix(SUFFIX)
    return name.endswith(SUFFIX) and stem.isascii() and stem.isdigit() and f"{int(stem):08d}" == stem
