from typing import Final

import numpy as np
from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview

COMPILED: Final[bool]
NEXT_ROW: Final = 0
MESSAGES: Final = 1
DATA_BYTES: Final = 2
IS_OTHER: Final = 3
OVERHEAD: Final = 112

def pack_messages(
    data: Buffer,
    table: NDArray[np.int64],
    first_row: int,
    out: memoryview,
    told: NDArray[np.int64],
    *,
    prefix: Buffer,
    first_seqno: int,
    base: NDArray[np.int64],
    group: Buffer,
    key_item: Buffer,
    limit: int,
) -> int: ...
