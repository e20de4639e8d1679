from typing import Final

import numpy as np
from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview

COMPILED: Final[bool]

def strip_headers(data: Buffer, table: NDArray[np.int64], prefix: bytes, out: memoryview) -> int: ...
