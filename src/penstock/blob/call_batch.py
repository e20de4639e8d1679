"""Small requests to a VDisk on another node that are made in the same turn of the loop, sent as one call.

A node that takes over hundreds of tablets looks up, blocks and starts many of them at a time. Each of these steps is one call to
each VDisk for all of them, and the VDisk makes it durable with one sync.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

REQUESTS_PER_CALL: Final = 256

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class CallBatch(Generic[Request, Answer]):
    """Collects requests until the turn ends. `send` gets those of one generation of the group, and returns an answer to each, in
    order; what it raises is raised to every caller."""

    def __init__(self, send: Callable[[int, Sequence[Request]], Awaitable[Sequence[Answer]]]) -> None:
        self._send = send
        self._waiting: dict[int, list[tuple[Request, asyncio.Future[Answer]]]] = {}  # by generation
        self._sending: set[asyncio.Task[None]] = set()

    async def ask(self, generation: int, request: Request) -> Answer:
        """The answer to one request."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._flush)
        answered: asyncio.Future[Answer] = loop.create_future()
        self._waiting.setdefault(generation, []).append((request, answered))
        return await answered

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for generation, asked in waiting.items():
            for begin in range(0, len(asked), REQUESTS_PER_CALL):
                task = asyncio.create_task(self._carry(generation, asked[begin : begin + REQUESTS_PER_CALL]))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)

    async def _carry(self, generation: int, asked: Sequence[tuple[Request, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._send(generation, [request for request, _ in asked])
        except OSError as error:
            for _, answered in asked:
                if not answered.done():
                    answered.set_exception(type(error)(*error.args))
            return
        except BaseException:
            for _, answered in asked:
                answered.cancel()
            raise
        for (_, answered), answer in zip(asked, answers, strict=True):
            if not answered.done():
                answered.set_result(answer)
