from typing import Final

import numpy as np
from numpy.typing import NDArray

Bytes = bytes | bytearray | memoryview | NDArray[np.uint8]

COMPILED: Final[bool]

class BinaryColumn:
    def __init__(self, offsets: NDArray[np.int32], data: Bytes, validity: Bytes, first: int) -> None: ...

class HeaderColumn:
    def __init__(self, offsets: NDArray[np.int32], first: int, keys: BinaryColumn, values: BinaryColumn) -> None: ...

class RecordColumns:
    def __init__(self, keys: BinaryColumn, values: BinaryColumn, headers: HeaderColumn | None = None) -> None: ...

def encode_records(
    columns: RecordColumns, rows: NDArray[np.int64], begin: int, out: bytearray | memoryview | NDArray[np.uint8]
) -> tuple[int, int]: ...
def choose_partitions(keys: BinaryColumn, partitions: int, without_key: int, chosen: NDArray[np.int32]) -> None: ...
