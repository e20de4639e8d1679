from typing import Final

import numpy as np
from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview

COMPILED: Final[bool]
SLOT_FIELDS: Final = 3

class KeySlots:
    used: int
    used_max: int
    def __init__(self, slots: NDArray[np.uint64], secret: tuple[int, int], used_max: int) -> None: ...
    def bound(self, noted_to: int, tombstones_to: int) -> None: ...

def note_keys(run: Buffer, table: NDArray[np.int64], from_offset: int, keys: KeySlots) -> int: ...
def sift(run: Buffer, table: NDArray[np.int64], keys: KeySlots, husk_row: int, out: Buffer) -> tuple[int, int]: ...
def digest(data: Buffer, secret: tuple[int, int]) -> tuple[int, int]: ...
