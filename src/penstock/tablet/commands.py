"""What a KV tablet can be asked: commands, gathered in a request that happens as a whole or not at all, and their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.blob import Buffer

KEY_SIZE_MAX = 4000
PIECES_MAX = (1 << 16) - 1
READ_BYTES_MAX = 25 << 20


class Write(NamedTuple):
    """Set a key. `head` is a small piece in front of the value that is kept in memory and can be read without waiting. A value in
    several buffers is not joined: they are stored as they lie. One of up to `inline_max` bytes is kept in memory and in the log,
    not in a blob of its own; it is for the tablet to say how long that may be unless it is said here."""

    key: bytes
    value: Buffer | tuple[Buffer, ...]
    head: bytes = b""
    inline_max: int | None = None

    @property
    def size(self) -> int:
        """Bytes of the value."""
        return sum(map(len, self.value)) if isinstance(self.value, tuple) else len(self.value)


@dataclass(frozen=True, slots=True)
class Read:
    """A value, or `length` bytes of it from `offset`."""

    key: bytes
    offset: int = 0
    length: int | None = None


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Keys with begin <= key < end (None: to the last), with their values if asked for."""

    begin: bytes = b""
    end: bytes | None = None
    with_values: bool = False


class DeleteRange(NamedTuple):
    """Delete keys with begin <= key < end."""

    begin: bytes
    end: bytes


@dataclass(frozen=True, slots=True)
class Concat:
    """Set a key to the values of others, one after another, behind a `head` if given. No data moves; the sources' heads are left
    out, and the sources go unless they are to be kept."""

    sources: tuple[bytes, ...]
    target: bytes
    head: bytes = b""
    keep_sources: bool = False


@dataclass(frozen=True, slots=True)
class GetStatus:
    """How the tablet is."""


Command = Write | Read | ReadRange | DeleteRange | Concat | GetStatus


class Request(NamedTuple):
    """Commands that take effect together. Reads see the state before it. `generation`, if given, must be the tablet's own."""

    commands: tuple[Command, ...]
    generation: int | None = None
    makes_room: bool = False  # it deletes more than it adds, and so may use the space reserved for deletes on full disks


class ReadResult(NamedTuple):
    """`value` is None if there is no such key; `cut` tells that it was longer than one read answers."""

    value: bytes | memoryview | None
    cut: bool = False


class KeyInfo(NamedTuple):
    """A key of a range; `value` is there if it was asked for."""

    key: bytes
    size: int
    value: bytes | memoryview | None = None


class RangeResult(NamedTuple):
    """Keys in order; `cut` tells that there are more than one read answers."""

    keys: tuple[KeyInfo, ...]
    cut: bool = False


class TabletStatus(NamedTuple):
    """The tablet's generation, and what it holds."""

    generation: int
    step: int
    keys: int
    value_bytes: int
    data_blobs: int


Result = ReadResult | RangeResult | TabletStatus | None
