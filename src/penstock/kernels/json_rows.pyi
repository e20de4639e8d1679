from typing import Final

import numpy as np
from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview

COMPILED: Final[bool]
COLUMN_FIELDS: Final = 6
NAME_AT: Final = 0
NAME_SIZE: Final = 1
YSON_AT: Final = 2
YSON_SIZE: Final = 3
KIND: Final = 4
IS_REQUIRED: Final = 5
STRING: Final = 0
SIGNED: Final = 1
UNSIGNED: Final = 2
DOUBLE: Final = 3
BOOLEAN: Final = 4
OTHER: Final = 5
ROW_FIELDS: Final = 3
START: Final = 0
SIZE: Final = 1
WEIGHT: Final = 2
VALUE_FIELDS: Final = 4

def measure_rows(
    data: Buffer,
    rows: NDArray[np.int64],
    found: NDArray[np.int64],
    *,
    columns: NDArray[np.int64],
    limits: NDArray[np.uint64],
    names: bytes,
    base_weight: int,
) -> None: ...
def scan_rows(
    data: Buffer,
    table: NDArray[np.int64],
    found: NDArray[np.int64],
    *,
    columns: NDArray[np.int64],
    limits: NDArray[np.uint64],
    names: bytes,
) -> int: ...
