"""Waits for new messages of a subject, or of all subjects that a pattern matches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from penstock.broker.errors import UnknownTopicError
from penstock.core.errors import UnavailableError
from penstock.gateway.stream.caller import StreamCaller

UNAVAILABLE_PAUSE_S: Final = 0.1
DISAGREED_PAUSE_S: Final = 0.02


async def last_sequences(
    caller: StreamCaller, subject: str, after: int, wait_s: float, *, gives_up: bool = False
) -> AsyncIterator[int]:
    """Yields the last readable sequence each time it has grown beyond `after`. Runs until the caller ends it, or with `gives_up`
    until nothing new came for `wait_s`. The access rules are checked each time, as they may change meanwhile."""
    followers = caller.streams.followers
    while True:
        if followers.closed:
            raise UnavailableError("the node is shutting down; retry in a moment")
        seen = followers.told
        last = await _last_sequence(caller, subject)
        if last > after:
            after = last
            yield last
        elif not await followers.wait(lambda seen=seen: followers.told != seen, wait_s) and gives_up:  # type: ignore[misc]
            return


async def wait_for_more(caller: StreamCaller, subject: str, next_sequence: int, wait_s: float, *, gives_up: bool = False) -> bool:
    """Wait until there is more to read from a sequence on, for a reader that has just read nothing there. Returns False if it
    gave up. If the wait ends at once, the last sequence and the read disagree; the pause keeps the reader from spinning."""
    followers = caller.streams.followers
    seen = followers.told
    async for _ in last_sequences(caller, subject, next_sequence - 1, wait_s, gives_up=gives_up):
        if followers.told == seen:
            await asyncio.sleep(DISAGREED_PAUSE_S)
        return True
    return False


async def _last_sequence(caller: StreamCaller, subject: str) -> int:
    while True:
        try:
            await caller.admit_describe(subject)
            return await caller.streams.last_sequence(subject)
        except UnknownTopicError:
            return 0
        except UnavailableError:
            if caller.streams.followers.closed:
                raise
            await asyncio.sleep(UNAVAILABLE_PAUSE_S)
