"""Incoming payloads: their parts, and the size and checksum announced by the publisher."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from penstock.blob import Buffer
from penstock.broker.streams.errors import PayloadCorruptError


async def in_one_piece(data: bytes) -> AsyncIterator[Buffer]:
    """All of it as one part."""
    yield data


async def chained(held: Sequence[Buffer], rest: AsyncIterator[Buffer]) -> AsyncIterator[Buffer]:
    """Parts that were already received, then the remaining ones as they arrive."""
    for part in held:
        yield part
    async for part in rest:
        yield part


def check_announced(size: int, checksum: int, announced_size: int | None, announced_checksum: int | None) -> None:
    """Raise PayloadCorruptError if the payload differs from the announced size or checksum."""
    if announced_size not in (None, size) or announced_checksum not in (None, checksum):
        raise PayloadCorruptError(
            f"{size} bytes with checksum {checksum:08x} came, not those that were announced; send them again"
        )
