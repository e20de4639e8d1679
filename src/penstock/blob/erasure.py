"""The codes: how a blob becomes parts, and how any sufficient parts become the blob again.

    code          parts   enough   a part is
    none          1       1        the blob
    mirror-3-dc   3       1        the blob
    mirror-3      3       1        the blob
    block-4-2     6       4        a quarter of the blob, or parity

block-4-2 is systematic. Parts 1-4 are consecutive slices of the blob, the tail padded with zeros; 5 and 6 are parity:

    part size = ceil(N / 128) * 32

    blob     |<------ 1 ------>|<------ 2 ------>|<------ 3 ------>|<-- 4 -->00000000|
    parity   |<------ P ------>|<------ Q ------>|

Parity is row-diagonal (RDP, p = 5), by XOR alone. A part is a column of four *rows*, each a contiguous quarter of the part. P
is the XOR of the data along rows; cell (row, column) lies on diagonal (row + column) mod 5, P being column 4, and Q holds the
XOR of diagonals 0-3. Diagonal 4 is left out, which is what makes any two columns recoverable:

            1   2   3   4   P        Q
    row 0   0   1   2   3   .    ->  xor of all cells marked 0
    row 1   1   2   3   .   0    ->  xor of all cells marked 1
    row 2   2   3   .   0   1    ->  xor of all cells marked 2
    row 3   3   .   0   1   2    ->  xor of all cells marked 3

Encoding is the restoring of lost P and Q. A plan for a set of lost columns is found once by peeling, solving in turn the cells
that alone are unknown in their row or diagonal; it is then run as XORs of long contiguous rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import combinations
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.blob.disk import Buffer
from penstock.blob.topology import Erasure

_ROWS = 4
_COLUMNS = 6
_P = 4
_Q = 5
_DIAGONALS = 5
_PARITY = frozenset((_P, _Q))

_Cell = tuple[int, int]
"""(column, row)."""

_Bytes = NDArray[np.uint8]


class Codec(Protocol):
    """One code. Part ids count from 1; blob sizes are those of valid blobs, one byte or more."""

    @property
    def total_parts(self) -> int:
        """How many different parts a blob has."""
        ...

    @property
    def data_parts(self) -> int:
        """How many different parts suffice, whichever they are."""
        ...

    def part_size(self, blob_size: int) -> int:
        """Bytes in each part of a blob."""
        ...

    def encode(self, data: Buffer) -> list[Buffer]:
        """All parts in order of id. Where no padding is needed they are views of `data`, which must not change under them."""
        ...

    def restore(self, blob_size: int, parts: Mapping[int, Buffer], want: Iterable[int]) -> dict[int, Buffer]:
        """The wanted parts: those given as they are, the others computed. ValueError if the given ones do not suffice."""
        ...

    def join(self, blob_size: int, parts: Mapping[int, Buffer]) -> bytes | memoryview:
        """The blob, from any sufficient parts. ValueError if they do not suffice."""
        ...

    def slices(self, blob_size: int, offset: int, length: int) -> list[tuple[int, int, int]]:
        """The pieces (part id, offset in the part, length) that give a range of the blob when put one after another.

        Where each part is the whole blob the piece names part 1, and the same range of any other part will do.
        """
        ...


def codec_for(erasure: Erasure) -> Codec:
    """The code of groups of a kind."""
    if erasure is Erasure.BLOCK_4_2:
        return _BLOCK_4_2
    return _MIRROR if erasure.is_mirror else _NONE


class WholeCodec:
    """Every part is the blob itself."""

    data_parts = 1

    def __init__(self, total_parts: int) -> None:
        self.total_parts = total_parts

    def part_size(self, blob_size: int) -> int:
        """See Codec."""
        return blob_size

    def encode(self, data: Buffer) -> list[Buffer]:
        """See Codec."""
        return [data] * self.total_parts

    def restore(self, blob_size: int, parts: Mapping[int, Buffer], want: Iterable[int]) -> dict[int, Buffer]:
        """See Codec."""
        wanted = _checked(self, blob_size, parts, want)
        return {part: parts[part] if part in parts else self._any(parts) for part in wanted}

    def join(self, blob_size: int, parts: Mapping[int, Buffer]) -> bytes | memoryview:
        """See Codec."""
        _checked(self, blob_size, parts)
        whole = self._any(parts)
        return whole if isinstance(whole, bytes) else memoryview(whole)

    def slices(self, blob_size: int, offset: int, length: int) -> list[tuple[int, int, int]]:
        """See Codec."""
        _check_range(blob_size, offset, length)
        return [(1, offset, length)] if length else []

    def _any(self, parts: Mapping[int, Buffer]) -> Buffer:
        for part in parts.values():
            return part
        raise ValueError("no part of the blob is at hand; any one is enough")


class Block42Codec:
    """Four slices and two parities; any four parts are enough."""

    total_parts = 6
    data_parts = 4

    def part_size(self, blob_size: int) -> int:
        """See Codec."""
        return (blob_size + 127) // 128 * 32

    def encode(self, data: Buffer) -> list[Buffer]:
        """See Codec."""
        view = memoryview(data).cast("B")
        size = self.part_size(len(view))
        parts: list[Buffer] = [_padded(view[start : start + size], size) for start in range(0, 4 * size, size)]
        columns = {column: _array(part) for column, part in enumerate(parts)}
        _solve(columns, _plan(_PARITY, _PARITY), size)
        return [*parts, columns[_P].data, columns[_Q].data]

    def restore(self, blob_size: int, parts: Mapping[int, Buffer], want: Iterable[int]) -> dict[int, Buffer]:
        """See Codec."""
        wanted = _checked(self, blob_size, parts, want)
        lost = [part for part in wanted if part not in parts]
        if not lost:
            return {part: parts[part] for part in wanted}
        plan = _plan_for(parts, lost)
        columns = {part - 1: _array(buffer) for part, buffer in parts.items()}
        _solve(columns, plan, self.part_size(blob_size))
        return {part: parts[part] if part in parts else columns[part - 1].data for part in wanted}

    def join(self, blob_size: int, parts: Mapping[int, Buffer]) -> bytes | memoryview:
        """See Codec."""
        _checked(self, blob_size, parts)
        lost = [part for part in range(1, 5) if part not in parts]
        if not lost:
            return b"".join([memoryview(parts[part])[:length] for part, _, length in self.slices(blob_size, 0, blob_size)])
        plan = _plan_for(parts, lost)
        size = self.part_size(blob_size)
        columns = {part - 1: _array(buffer) for part, buffer in parts.items()}
        # Lost slices are computed where they belong in the blob, and the others copied around them.
        blob = np.empty(4 * size, np.uint8)
        for column in range(4):
            place = blob[column * size : (column + 1) * size]
            if column in columns:
                place[:] = columns[column]
            columns[column] = place
        _solve(columns, plan, size)
        return blob.data[:blob_size]

    def slices(self, blob_size: int, offset: int, length: int) -> list[tuple[int, int, int]]:
        """See Codec."""
        _check_range(blob_size, offset, length)
        size = self.part_size(blob_size)
        pieces = []
        while length:
            index, start = divmod(offset, size)
            piece = min(length, size - start)
            pieces.append((index + 1, start, piece))
            offset += piece
            length -= piece
        return pieces


_NONE = WholeCodec(1)
_MIRROR = WholeCodec(3)
_BLOCK_4_2 = Block42Codec()


def _checked(codec: Codec, blob_size: int, parts: Mapping[int, Buffer], want: Iterable[int] = ()) -> list[int]:
    """The wanted ids, once they and the given parts are known to be of this code and of this blob's size."""
    size = codec.part_size(blob_size)
    for part, buffer in parts.items():
        if not 1 <= part <= codec.total_parts:
            raise ValueError(f"part {part} given; this code has parts 1..{codec.total_parts}")
        if len(buffer) != size:
            raise ValueError(f"part {part} has {len(buffer)} bytes; each part of a blob of {blob_size} bytes has {size}")
    wanted = list(want)
    for part in wanted:
        if not 1 <= part <= codec.total_parts:
            raise ValueError(f"part {part} wanted; this code has parts 1..{codec.total_parts}")
    return wanted


def _check_range(blob_size: int, offset: int, length: int) -> None:
    if offset < 0 or length < 0 or offset + length > blob_size:
        raise ValueError(f"range of {length} bytes at {offset} is outside the blob of {blob_size} bytes")


def _array(part: Buffer) -> _Bytes:
    # XOR of bytes is as fast as XOR of words here, and does not mind where in a receive buffer the part begins.
    return np.frombuffer(part, np.uint8)


def _padded(piece: memoryview, size: int) -> Buffer:
    return piece if len(piece) == size else bytes(piece).ljust(size, b"\0")


class _Xor(NamedTuple):
    """`target = left ^ right` over runs of rows; places are columns and first rows. Adding to a target has it as `left`."""

    target: _Cell
    left: _Cell
    right: _Cell
    rows: int


class _Plan(NamedTuple):
    """XORs in an order that can be run, and the columns they fill."""

    fills: tuple[int, ...]
    xors: tuple[_Xor, ...]


def _solve(columns: dict[int, _Bytes], plan: _Plan, size: int) -> None:
    """Run a plan, making the columns it fills that are not there yet."""
    missing = [column for column in plan.fills if column not in columns]
    # One allocation for all: the C library gives two neighbours freed together back to the system, and then every blob pays
    # for fresh pages, which takes longer than the code.
    columns.update(zip(missing, np.empty((len(missing), size), np.uint8), strict=True))
    row_size = size // _ROWS
    xor = np.bitwise_xor
    for (target, target_row), (left, left_row), (right, right_row), rows in plan.xors:
        out = columns[target]
        augend = columns[left]
        addend = columns[right]
        if rows != _ROWS:
            length = rows * row_size
            start = target_row * row_size
            out = out[start : start + length]
            start = right_row * row_size
            addend = addend[start : start + length]
            start = left_row * row_size
            augend = out if left == target else augend[start : start + length]
        xor(augend, addend, out)


def _plan_for(parts: Mapping[int, Buffer], want: Iterable[int]) -> _Plan:
    lost = frozenset(column for column in range(_COLUMNS) if column + 1 not in parts)
    if len(lost) > 2:
        raise ValueError(f"parts {sorted(parts)} of the blob are at hand; four different ones are needed")
    return _plan(lost, frozenset(part - 1 for part in want))


@cache
def _plan(lost: frozenset[int], want: frozenset[int]) -> _Plan:
    """What gives the wanted ones of the lost columns."""
    needed = _needed(_peel(lost), want)
    return _Plan(tuple(sorted({column for column, _ in needed})), tuple(_runs(needed)))


def _equations() -> list[frozenset[_Cell]]:
    """Sets of cells whose XOR is zero. Rows come first: they read no Q, and four of them run as one."""
    rows = [frozenset((column, row) for column in range(_Q)) for row in range(_ROWS)]
    places = [(column, row) for column in range(_Q) for row in range(_ROWS)]
    diagonals = [
        frozenset([(_Q, number), *((column, row) for column, row in places if (column + row) % _DIAGONALS == number)])
        for number in range(_ROWS)
    ]
    return rows + diagonals


def _peel(lost: frozenset[int]) -> dict[_Cell, frozenset[_Cell]]:
    """Each lost cell with the cells whose XOR it is, in an order in which those are known."""
    unknown = {(column, row) for column in lost for row in range(_ROWS)}
    solved: dict[_Cell, frozenset[_Cell]] = {}
    while unknown:
        equation = next(equation for equation in _equations() if len(equation & unknown) == 1)
        (cell,) = equation & unknown
        solved[cell] = equation - {cell}
        unknown.remove(cell)
    return solved


def _needed(solved: dict[_Cell, frozenset[_Cell]], want: frozenset[int]) -> dict[_Cell, set[_Cell]]:
    """The cells of wanted columns and those they are computed from."""
    needed: set[_Cell] = set()
    for cell, sources in reversed(solved.items()):
        if cell[0] in want or cell in needed:
            needed |= {cell, *sources}
    return {cell: set(sources) for cell, sources in solved.items() if cell in needed}


def _runs(open_cells: dict[_Cell, set[_Cell]]) -> Iterator[_Xor]:
    """XORs that add up every cell, the longest runs of rows first: a small blob costs calls, not bytes."""
    begun: set[_Cell] = set()
    while open_cells:
        run = max(_candidates(open_cells, begun), key=lambda candidate: candidate.rows)
        yield run
        for step in range(run.rows):
            target, left, right = (_down(place, step) for place in run[:3])
            open_cells[target] -= {left, right}
            begun.add(target)
            if not open_cells[target]:
                del open_cells[target]


def _candidates(open_cells: dict[_Cell, set[_Cell]], begun: set[_Cell]) -> Iterator[_Xor]:
    """For every XOR that can be done now, the run of rows that it can be done for."""

    def can_do(target: _Cell, left: _Cell, right: _Cell) -> bool:
        if left == target:
            return target in begun and right in open_cells.get(target, ()) and right not in open_cells
        return target not in begun and {left, right} <= open_cells.get(target, set()) and not {left, right} & open_cells.keys()

    for target, sources in open_cells.items():
        pairs = [(target, source) for source in sorted(sources)] if target in begun else combinations(sorted(sources), 2)
        for left, right in pairs:
            rows = 0
            while can_do(_down(target, rows), _down(left, rows), _down(right, rows)):
                rows += 1
            if rows:
                yield _Xor(target, left, right, rows)


def _down(place: _Cell, rows: int) -> _Cell:
    column, row = place
    return column, row + rows
