from array import array
from typing import Final

import numpy as np
from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview

COMPILED: Final[bool]
PAYLOAD_FIELDS: Final = 4
RECORD: Final = 0
SCHEMA_ID: Final = 1
PAYLOAD_AT: Final = 2
PAYLOAD_SIZE: Final = 3

def find_unknown(
    data: Buffer, at: int, count: int, ids: NDArray[np.int64] | array[int], of_keys: bool, after: int
) -> tuple[int, int]: ...
def list_payloads(data: Buffer, at: int, count: int, of_keys: bool, table: NDArray[np.int64]) -> int: ...
