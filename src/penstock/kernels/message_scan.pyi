from typing import Final

import numpy as np
from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview

COMPILED: Final[bool]
ROW_FIELDS: Final = 4
SEQNO: Final = 0
TIME_MS: Final = 1
DATA_AT: Final = 2
DATA_SIZE: Final = 3
OVERHEAD: Final = 72

def count_messages(data: Buffer, at: int) -> tuple[int, int]: ...
def scan_messages(data: Buffer, at: int, table: NDArray[np.int64]) -> bool: ...
def pack_records(data: Buffer, table: NDArray[np.int64], out: memoryview, *, headers: Buffer, headers_after: Buffer) -> int: ...
