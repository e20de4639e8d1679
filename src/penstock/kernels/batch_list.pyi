from typing import Final

import numpy as np
from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview

COMPILED: Final[bool]
BATCH_FIELDS: Final = 13
AT: Final = 0
SIZE: Final = 1
BASE_OFFSET: Final = 2
NEXT_OFFSET: Final = 3
ATTRIBUTES: Final = 4
COUNT: Final = 5
BASE_TIMESTAMP: Final = 6
MAX_TIMESTAMP: Final = 7
PRODUCER: Final = 8
FATE: Final = 9
NEW_AT: Final = 10
NEW_SIZE: Final = 11
KEPT: Final = 12
KEEP: Final = 0
DROP: Final = 1
SIFT: Final = 2

def count_batches(run: Buffer) -> int: ...
def list_batches(run: Buffer, table: NDArray[np.int64]) -> None: ...
