from typing import Final

import numpy as np
from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview

COMPILED: Final[bool]
SLOT_FIELDS: Final = 3
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

def first_keyless(data: Buffer, count: int) -> int: ...
def count_batches(run: Buffer) -> int: ...
def list_batches(run: Buffer, table: NDArray[np.int64]) -> None: ...
def note_keys(
    run: Buffer,
    table: NDArray[np.int64],
    from_offset: int,
    secret: tuple[int, int],
    slots: NDArray[np.uint64],
    used: int,
    used_max: int,
) -> tuple[int, int]: ...
def sift(
    run: Buffer,
    table: NDArray[np.int64],
    secret: tuple[int, int],
    slots: NDArray[np.uint64],
    noted_to: int,
    tombstones_to: int,
    husk_row: int,
    out: Buffer,
) -> tuple[int, int]: ...
def digest(data: Buffer, secret: tuple[int, int]) -> tuple[int, int]: ...
