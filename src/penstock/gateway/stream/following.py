"""Following a subject, or all that a pattern stands for: told of each last sequence that is readable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from penstock.broker.errors import UnknownTopicError
from penstock.broker.streams import StreamEngine
from penstock.core.errors import UnavailableError

UNAVAILABLE_PAUSE_S: Final = 0.1
DISAGREED_PAUSE_S: Final = 0.02


async def followed(
    streams: StreamEngine, subject: str, after: int, wait_s: float, *, gives_up: bool = False
) -> AsyncIterator[int]:
    """The last readable sequence whenever it is beyond what was told before. Ends if the caller does, or after nothing came for
    `wait_s` if it gives up."""
    while True:
        if streams.followers.closed:
            raise UnavailableError("the node stops; come back in a moment")
        told = streams.followers.told
        last = await _last(streams, subject)
        if last > after:
            after = last
            yield last
        elif not await streams.followers.wait(lambda told=told: streams.followers.told != told, wait_s) and gives_up:  # type: ignore[misc]
            return


async def follow_on(streams: StreamEngine, subject: str, next_sequence: int, wait_s: float, *, gives_up: bool = False) -> bool:
    """Wait until there is more to read from a sequence on, for a reader that has just found nothing there; whether there is. If
    something is said to be there at once, the two do not agree, and the reader must not ask again without a pause."""
    told = streams.followers.told
    async for _ in followed(streams, subject, next_sequence - 1, wait_s, gives_up=gives_up):
        if streams.followers.told == told:
            await asyncio.sleep(DISAGREED_PAUSE_S)
        return True
    return False


async def _last(streams: StreamEngine, subject: str) -> int:
    while True:
        try:
            return await streams.last_sequence(subject)
        except UnknownTopicError:
            return 0
        except UnavailableError:
            if streams.followers.closed:
                raise
            await asyncio.sleep(UNAVAILABLE_PAUSE_S)
