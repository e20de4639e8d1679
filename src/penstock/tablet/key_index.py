"""The keys of a KV tablet: what each holds, which blobs that takes, and the effect of commands before they are durable.

A value is bytes if it is small, otherwise a chain of pieces: bytes kept here, and ranges of blobs. A blob lives while any value
refers to it. Pure state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sortedcontainers import SortedDict

from penstock.blob import BlobId
from penstock.core.errors import InvalidRequestError
from penstock.tablet.commands import KEY_SIZE_MAX, PIECES_MAX, Command, Concat, DeleteRange


class BlobRef(NamedTuple):
    """A range of a blob."""

    blob: BlobId
    offset: int
    length: int


Piece = bytes | BlobRef


class Chain(NamedTuple):
    """A value in pieces. Its head belongs to it but describes it: joined to others, a value leaves its head behind."""

    head: bytes
    pieces: tuple[Piece, ...]


Value = bytes | Chain
Change = tuple[bytes, Value | None]
"""A key and what it holds from now on; None if it is gone."""


def value_size(value: Value) -> int:
    """Bytes of a value, its head not counted."""
    if isinstance(value, bytes):
        return len(value)
    size = 0
    for piece in value.pieces:
        size += len(piece) if isinstance(piece, bytes) else piece.length
    return size


def refs_of(value: Value | None) -> list[BlobRef]:
    """The ranges of blobs in a value."""
    return [piece for piece in value.pieces if not isinstance(piece, bytes)] if isinstance(value, Chain) else []


class KeyIndex:
    """Keys in order, with how often each blob is referred to."""

    def __init__(self) -> None:
        self.values: SortedDict[bytes, Value] = SortedDict()
        self.references: dict[BlobId, int] = {}
        self.value_bytes = 0

    def apply(self, changes: Iterable[Change]) -> list[BlobId]:
        """Make changes that belong together; the blobs that nothing refers to any more."""
        changes = list(changes)
        # New references are counted before old ones are released: a blob may move from one key to another.
        for _, value in changes:
            for ref in refs_of(value):
                self.references[ref.blob] = self.references.get(ref.blob, 0) + 1
        dead: list[BlobId] = []
        for key, value in changes:
            before = self.values.get(key)
            if value is not None:
                self.values[key] = value
                self.value_bytes += value_size(value)
            if before is not None:
                self.value_bytes -= value_size(before)
                dead.extend(self._release(before))
                if value is None:
                    del self.values[key]
        return dead

    def load(self, changes: Iterable[Change]) -> None:
        """Take changes from a snapshot or the log; what refers to what is not counted until `count_references`."""
        for key, value in changes:
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value

    def count_references(self) -> None:
        """Recount all references, after loading."""
        self.references.clear()
        self.value_bytes = 0
        for value in self.values.values():
            self.value_bytes += value_size(value)
            for ref in refs_of(value):
                self.references[ref.blob] = self.references.get(ref.blob, 0) + 1

    def get(self, key: bytes) -> Value | None:
        """What a key holds."""
        return self.values.get(key)

    def keys(self, begin: bytes, end: bytes | None) -> Iterator[bytes]:
        """Keys with begin <= key < end, in order."""
        return iter(self.values.irange(begin, end, inclusive=(True, False)))

    def _release(self, value: Value) -> list[BlobId]:
        dead: list[BlobId] = []
        for ref in refs_of(value):
            left = self.references[ref.blob] - 1
            if left:
                self.references[ref.blob] = left
            else:
                del self.references[ref.blob]
                dead.append(ref.blob)
        return dead


class Overlay:
    """The index as it will be once the requests at hand are durable: a thin layer of changes over it, or over another layer."""

    def __init__(self, below: KeyIndex | Overlay) -> None:
        self._below = below
        self._changes: dict[bytes, Value | None] = {}

    def changes(self) -> list[Change]:
        """Every key that differs, in the order it was first touched."""
        return list(self._changes.items())

    def absorb(self, above: Overlay) -> None:
        """Take over the changes of a layer that was laid on this one."""
        self._changes.update(above._changes)

    def get(self, key: bytes) -> Value | None:
        """What a key will hold."""
        if key in self._changes:
            return self._changes[key]
        return self._below.get(key)

    def set(self, key: bytes, value: Value | None) -> None:
        """Change a key."""
        if not 0 < len(key) <= KEY_SIZE_MAX:
            raise InvalidRequestError(f"a key has 1 to {KEY_SIZE_MAX} bytes, not {len(key)}")
        self._changes[key] = value

    def keys(self, begin: bytes, end: bytes) -> list[bytes]:
        """Keys with begin <= key < end, in order."""
        names = {key for key in self._below.keys(begin, end) if self._changes.get(key, b"") is not None}
        names.update(key for key, value in self._changes.items() if value is not None and begin <= key < end)
        return sorted(names)

    def apply(self, command: Command) -> None:
        """Carry out a command that moves no data. InvalidRequestError if a key it needs is not there."""
        match command:
            case DeleteRange(begin, end):
                # One key, as most often: no need to look through all that has changed.
                only = [begin] if self.get(begin) is not None else []
                for key in only if end == begin + b"\0" else self.keys(begin, end):
                    self.set(key, None)
            case Concat():
                self._concat(command)

    def _concat(self, command: Concat) -> None:
        pieces: list[Piece] = []
        for key in command.sources:
            value = self.get(key)
            if value is None:
                raise InvalidRequestError(f"key {key!r} is to be joined to others, but it does not exist")
            if isinstance(value, Chain):
                pieces.extend(value.pieces)
            else:
                pieces.append(value)
        if len(pieces) > PIECES_MAX:
            raise InvalidRequestError(f"key {command.target!r} would have {len(pieces)} pieces; a value has at most {PIECES_MAX}")
        if not command.keep_sources:
            for key in command.sources:
                self.set(key, None)
        self.set(command.target, Chain(command.head, tuple(pieces)))
