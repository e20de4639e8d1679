from typing import Final

import numpy as np
from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview

COMPILED: Final[bool]
RECORD_OVERHEAD: Final = 24
ROW_OVERHEAD: Final = 64
COLUMN_OVERHEAD: Final = 16

def pack_row_records(data: Buffer, rows: NDArray[np.int64], first_delta: int, out: memoryview) -> int: ...
def write_yson(
    data: Buffer,
    table: NDArray[np.int64],
    found: NDArray[np.int64],
    out: memoryview,
    *,
    columns: NDArray[np.int64],
    names: bytes,
    base_offset: int,
    before: bytes,
    after: bytes,
    weights: NDArray[np.int64],
) -> int: ...
