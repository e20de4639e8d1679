from collections.abc import Sequence
from typing import Any, Final, Protocol

Buffer = bytes | bytearray | memoryview

COMPILED: Final[bool]

class _Marks(Protocol):
    offsets: Any
    positions: Any

class _Piece(Protocol):
    first_offset: int
    size: int
    buffers: list[Buffer]
    starts: list[int]
    @property
    def marks(self) -> _Marks: ...
    @property
    def next_offset(self) -> int: ...

def cut_batches(
    pieces: Sequence[_Piece], offset: int, size_max: int, until: int, at_least_one: bool
) -> tuple[list[Buffer], int, int]: ...
