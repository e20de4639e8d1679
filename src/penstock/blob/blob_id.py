"""Blob ids: the key of every blob (the seed's TLogoBlobID).

Stored form, 25 bytes, big-endian, so that byte order is the order of the fields and of the ids:

     0         8   9          13      17       21                 25
     +---------+---+----------+-------+--------+------------------+
     | tablet  |ch |generation| step  | cookie | size:28 | part:4 |
     +---------+---+----------+-------+--------+------------------+

The first 21 bytes (the *prefix*) name the blob: no two blobs share a prefix and differ in size. The first 9 (the
*channel key*) name the tablet's channel; the 12 between are the blob's place in it.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import NamedTuple

from penstock.core.errors import InvalidRequestError

BLOB_SIZE_MAX = 10 * 1024 * 1024
PREFIX_SIZE = 21
CHANNEL_KEY_SIZE = 9
ID_SIZE = 25

GENERATION_MAX = (1 << 32) - 1
STEP_MAX = (1 << 32) - 1
COOKIE_MAX = (1 << 32) - 1
CHANNEL_MAX = (1 << 8) - 1
TABLET_MAX = (1 << 64) - 1
SIZE_FIELD_MAX = (1 << 28) - 1
PART_MAX = (1 << 4) - 1
MAX_BARRIER = (GENERATION_MAX, STEP_MAX)  # above every blob of a channel: what ends a tablet as a whole

_ID = Struct(">QBIIII")
_TEXT = re.compile(r"\[" + ":".join(["([0-9]{1,20})"] * 7) + r"\]")


class BlobId(NamedTuple):
    """One blob (part 0) or one of its parts. Tuple order is id order."""

    tablet: int
    channel: int
    generation: int
    step: int
    cookie: int
    size: int
    part: int = 0

    def pack(self) -> bytes:
        """The stored form."""
        tablet, channel, generation, step, cookie, size, part = self
        return _ID.pack(tablet, channel, generation, step, cookie, size << 4 | part)

    def pack_part(self, part: int) -> bytes:
        """The stored form of one of this blob's parts."""
        tablet, channel, generation, step, cookie, size, _ = self
        return _ID.pack(tablet, channel, generation, step, cookie, size << 4 | part)

    @classmethod
    def unpack(cls, raw: bytes | memoryview) -> BlobId:
        """The id whose stored form is `raw`."""
        tablet, channel, generation, step, cookie, size_part = _ID.unpack(raw)
        return cls(tablet, channel, generation, step, cookie, size_part >> 4, size_part & PART_MAX)

    @classmethod
    def parse(cls, text: str) -> BlobId:
        """The id written as `[TabletId:Generation:Step:Channel:Cookie:BlobSize:PartId]`."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise InvalidRequestError(f"{text!r} is not a blob id; write [tablet:generation:step:channel:cookie:size:part]")
        tablet, generation, step, channel, cookie, size, part = map(int, match.groups())
        parsed = cls(tablet, channel, generation, step, cookie, size, part)
        parsed.check()
        return parsed

    def check(self) -> None:
        """Raise InvalidRequestError unless every field fits its width."""
        for value, limit, name in zip(self, _LIMITS, self._fields, strict=True):
            if not 0 <= value <= limit:
                raise InvalidRequestError(f"blob id field {name} is {value}; it must be within 0..{limit}")

    def whole(self) -> BlobId:
        """The id of the blob this part belongs to."""
        return self if self.part == 0 else self._replace(part=0)

    def __str__(self) -> str:
        tablet, channel, generation, step, cookie, size, part = self
        return f"[{tablet}:{generation}:{step}:{channel}:{cookie}:{size}:{part}]"


_LIMITS = (TABLET_MAX, CHANNEL_MAX, GENERATION_MAX, STEP_MAX, COOKIE_MAX, SIZE_FIELD_MAX, PART_MAX)
