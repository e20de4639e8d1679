from typing import Final

import numpy as np
from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview

COMPILED: Final[bool]
RETURN: Final = 0
BOOLEAN: Final = 1
INT: Final = 2
LONG: Final = 3
RAW: Final = 4
BYTES: Final = 5
STRING: Final = 6
ENUM: Final = 7
UNION: Final = 8
RECORD: Final = 9
ARRAY: Final = 10
MAP: Final = 11
STEP_FIELDS: Final = 3
MATCHES: Final = 0
TOO_SHORT: Final = 1
TOO_LONG: Final = 2
NO_BOOLEAN: Final = 3
NO_INT: Final = 4
BAD_LENGTH: Final = 5
NO_TEXT: Final = 6
NO_SYMBOL: Final = 7
NO_BRANCH: Final = 8
TOO_DEEP: Final = 9
BAD_BLOCK: Final = 10
CALL_FIELDS: Final = 3

class AvroProgram:
    def __init__(self, steps: NDArray[np.int64], branches: NDArray[np.int64]) -> None: ...
    def find_invalid(
        self, data: Buffer, payloads: NDArray[np.int64], first: int, calls: NDArray[np.int64]
    ) -> tuple[int, int, int, list[int]]: ...
