from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.core.errors import CorruptionError

Bytes = bytes | bytearray | memoryview | NDArray[np.uint8]

COMPILED: Final[bool]

class MalformedBatchError(CorruptionError): ...

class OctetsRoom:
    rows: int
    rows_max: int
    used: int
    nulls: int
    def __init__(
        self,
        offsets: NDArray[np.int32],
        validity: NDArray[np.uint8],
        data: NDArray[np.uint8],
        wrapping: tuple[bytes, bytes, bytes] | None = None,
    ) -> None: ...

class ArrowRoom:
    rows: int
    rows_max: int
    header_nulls: int
    def __init__(
        self,
        numbers: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]],
        keys: OctetsRoom | None = None,
        values: OctetsRoom | None = None,
        headers: tuple[NDArray[np.int32], NDArray[np.uint8], OctetsRoom, OctetsRoom] | None = None,
    ) -> None: ...

class BatchDecoder:
    next_offset: int
    needed: int
    used: int
    def __init__(
        self,
        start: int,
        stop: int,
        decompress: Callable[[int, memoryview], Bytes],
        is_committed: bool = False,
        checks: bool = True,
    ) -> None: ...
    @property
    def is_done(self) -> bool: ...
    def feed(self, data: Bytes, aborted: Iterable[tuple[int, int]] = (), start: int = 0) -> None: ...
    def fill(self, room: ArrowRoom) -> bool: ...

def find_end(data: Bytes) -> tuple[int, int]: ...
