from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

Bytes = bytes | bytearray | memoryview | NDArray[np.uint8]

COMPILED: Final[bool]
NULLABLE: Final = 0
BOOLEAN: Final = 1
INTEGER: Final = 2
RAW: Final = 3
OCTETS: Final = 4
FIXED: Final = 5
ENUM: Final = 6
FIELDS: Final = 4
STRINGS: Final = -1
BITS: Final = -2
NO_DATA: Final = -3

class AvroColumn:
    rows: int
    used: int
    nulls: int
    def __init__(self, width: int, validity: NDArray[np.uint8], data: NDArray[np.uint8], offsets: NDArray[np.int32]) -> None: ...

class AvroDecoder:
    def __init__(
        self, steps: NDArray[np.int64], columns: Iterable[AvroColumn], symbols: bytes, symbol_starts: NDArray[np.int32]
    ) -> None: ...
    def decode(self, data: Bytes, starts: NDArray[np.int32], validity: NDArray[np.uint8]) -> int: ...
