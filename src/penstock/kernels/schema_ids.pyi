from typing import Final

import numpy as np
from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview

COMPILED: Final[bool]

def find_unknown(data: Buffer, at: int, count: int, ids: NDArray[np.int64], of_keys: bool, after: int) -> tuple[int, int]: ...
