"""Reading a KV tablet's values: whole, in part, by range of keys, and as pieces of open files."""

from __future__ import annotations

import asyncio

from penstock.blob import FilePiece, Status, TabletStorage
from penstock.core.errors import CorruptionError, InvalidRequestError, UnavailableError
from penstock.tablet.boot import check_owner
from penstock.tablet.commands import READ_BYTES_MAX, KeyInfo, RangeResult, Read, ReadRange, ReadResult
from penstock.tablet.key_index import BlobRef, Chain, KeyIndex, Piece, Value, value_size


class ValueReader:
    """Reads what the keys of an index hold at the time."""

    def __init__(self, storage: TabletStorage, generation: int, index: KeyIndex) -> None:
        self._storage = storage
        self._generation = generation
        self._index = index

    async def value(self, key: bytes, offset: int, length: int | None) -> bytes | memoryview | None:
        """A range of a value, however long; None if there is no such key."""
        value = self._index.values.get(key)
        if value is None:
            return None
        return await self._fetch(value, offset, value_size(value) - offset if length is None else length)

    def pieces(self, key: bytes, offset: int, length: int) -> list[FilePiece] | None:
        """The same as pieces of open files, where all of it can be had so."""
        value = self._index.values.get(key)
        if not isinstance(value, Chain):
            return None
        file_pieces: list[FilePiece] = []
        for piece in _cut(value, offset, length):
            files = None if isinstance(piece, bytes) else self._storage.pieces(*piece)
            if files is None:
                return None
            file_pieces.extend(files)
        return file_pieces

    async def read(self, command: Read) -> ReadResult:
        """The answer to a read. InvalidRequestError if it is outside the value."""
        key, offset, length = command.key, command.offset, command.length
        value = self._index.values.get(key)
        if value is None:
            return ReadResult(None)
        size = value_size(value)
        if not 0 <= offset <= size or (length is not None and length < 0):
            raise InvalidRequestError(f"key {key!r} has {size} bytes; {length} from {offset} cannot be read")
        wanted = size - offset if length is None else min(length, size - offset)
        data = await self._fetch(value, offset, min(wanted, READ_BYTES_MAX))
        return ReadResult(data, cut=wanted > READ_BYTES_MAX)

    async def read_range(self, command: ReadRange) -> RangeResult:
        """The answer to a read of a range: at least one key, if there is any."""
        # All that is read is chosen at once: it belongs to one state of the tablet.
        chosen: list[tuple[bytes, Value]] = []
        left = READ_BYTES_MAX
        cut = False
        for key in self._index.keys(command.begin, command.end):
            value = self._index.values[key]
            left -= len(key) + (value_size(value) if command.with_values else 0)
            if left < 0 and chosen:
                cut = True
                break
            chosen.append((key, value))
        infos: list[KeyInfo] = []
        for key, value in chosen:
            size = value_size(value)
            data = await self._fetch(value, 0, min(size, READ_BYTES_MAX)) if command.with_values else None
            cut = cut or (data is not None and len(data) < size)
            infos.append(KeyInfo(key, size, data))
        return RangeResult(tuple(infos), cut)

    async def _fetch(self, value: Value, offset: int, length: int) -> bytes | memoryview:
        if isinstance(value, bytes):
            return value[offset : offset + length]
        pieces = _cut(value, offset, length)
        parts = await asyncio.gather(*(self._fetch_piece(piece) for piece in pieces))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _fetch_piece(self, piece: Piece) -> bytes | memoryview:
        if isinstance(piece, bytes):
            return piece
        result = await self._storage.get(piece.blob, piece.offset, piece.length)
        if result.status is Status.OK:
            assert len(result.data) == piece.length, "the storage returns the range that was asked for"
            return result.data
        if result.status is Status.NODATA and piece.blob in self._index.references:
            await check_owner(self._storage, self._generation)
            raise CorruptionError(f"{piece.blob} is referred to and not there")
        if result.status is Status.NODATA:
            raise UnavailableError(f"{piece.blob} was deleted while it was read; read again")
        if result.damaged:
            raise CorruptionError(f"{piece.blob} is damaged, and there is no sound copy of it: {result.reason}")
        raise UnavailableError(f"{piece.blob} cannot be read: {result.status.value}: {result.reason}")


def _cut(value: Chain, offset: int, length: int) -> list[Piece]:
    """The pieces of a range of a chain."""
    pieces: list[Piece] = []
    for piece in value.pieces:
        if length <= 0:
            break
        size = len(piece) if isinstance(piece, bytes) else piece.length
        if offset < size:
            count = min(size - offset, length)
            if isinstance(piece, bytes):
                pieces.append(piece[offset : offset + count])
            else:
                pieces.append(BlobRef(piece.blob, piece.offset + offset, count))
            length -= count
            offset = 0
        else:
            offset -= min(offset, size)
    return pieces
