from typing import Final

import numpy as np
from numpy.typing import NDArray

COMPILED: Final[bool]
ACK_BYTES_MAX: Final = 26

def pack_acks(seqnos: NDArray[np.uint64], base_offset: int, instead: bytes, out: memoryview) -> int: ...
