from collections.abc import Sequence
from typing import Final

COMPILED: Final[bool]

def block_sums(
    buffers: Sequence[bytes | bytearray | memoryview], block_size: int, known: Sequence[int] | None = None
) -> bytes: ...
def records_sum(batch: bytes | bytearray | memoryview) -> int: ...
