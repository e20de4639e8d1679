from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.core.errors import CorruptionError

Buffer = bytes | bytearray | memoryview

COMPILED: Final[bool]
FIELDS: Final = 9
START: Final = 0
END: Final = 1
TIMESTAMP_DELTA: Final = 2
OFFSET_DELTA: Final = 3
KEY_AT: Final = 4
KEY_SIZE: Final = 5
VALUE_AT: Final = 6
VALUE_SIZE: Final = 7
HEADERS_AT: Final = 8

class MalformedRecordsError(CorruptionError): ...

def scan_records(data: Buffer, table: NDArray[np.int64] | memoryview[int]) -> int: ...
def count_run(run: Buffer) -> int: ...
def scan_run(run: Buffer, table: NDArray[np.int64] | memoryview[int]) -> None: ...
def find_record(data: Buffer, offset_delta: int) -> tuple[int, int, int, int, int, int] | None: ...
def check_records(data: Buffer, begin: int, count: int) -> tuple[int, int, int]: ...
