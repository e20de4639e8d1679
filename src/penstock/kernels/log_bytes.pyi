from collections.abc import Sequence
from typing import Final

from penstock.core.record_format import Octets

COMPILED: Final[bool]
HEADER_SIZE: Final = 64
SHORT_MAX: Final = 16384

def record_start(
    start: bytes,
    blob_id: bytes,
    body: Octets,
    length: int,
    chunk: int,
    offset: int,
    durable_chunk: int,
    durable_offset: int,
) -> bytearray: ...
def packed_id(tablet: int, channel: int, generation: int, step: int, cookie: int, size_part: int) -> bytes: ...
def part_of(data: bytes, at: int, end: int) -> bytes: ...
def entry_of_appends(start: bytes, sections: list[bytes], appends: Sequence[tuple[int, bytes, bytes]]) -> bytearray: ...
def set_place(batch: bytearray, offset: int, length: int, epoch: int) -> None: ...
def grown(room: bytearray, size: int, capacity: int) -> bytearray: ...
def copy_into(room: bytearray, at: int, data: bytes) -> None: ...
