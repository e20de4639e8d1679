"""Bodies of requests as they arrive: slow ones are given up, and all of them together have a bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from penstock.core.clock import SystemClock
from penstock.core.errors import PenstockError
from penstock.gateway.http_bodies import BodyLimits, IncomingBodies, MemoryBudget
from penstock.gateway.yt.formats import Format, read_rows

SIZE_MAX = 1 << 20


class Server:
    """Answers with the size of a body, or with the code of what was wrong with it."""

    def __init__(self, limits: BodyLimits) -> None:
        self.bodies = IncomingBodies(limits, SystemClock())
        self.port = 0

    async def take(self, request: web.Request) -> web.Response:
        try:
            async with self.bodies.read(request, SIZE_MAX) as body:
                return web.Response(text=str(len(body)))
        except PenstockError as error:
            return web.Response(status=400, text=error.code)


@asynccontextmanager
async def serving(limits: BodyLimits) -> AsyncIterator[Server]:
    server = Server(limits)
    app = web.Application(client_max_size=0)
    app.router.add_put("/", server.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.port = runner.addresses[0][1]
        yield server
    finally:
        await runner.cleanup()


class Client:
    """One connection that sends a body bit by bit."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def begin(cls, server: Server, announced: int, sent: int) -> Client:
        client = cls(*await asyncio.open_connection("127.0.0.1", server.port))
        await client.send(f"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: {announced}\r\n\r\n".encode() + bytes(sent))
        return client

    async def send(self, raw: bytes) -> None:
        self._writer.write(raw)
        await self._writer.drain()

    async def answer(self) -> str:
        """The body of the answer."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        size = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
        return (await self._reader.readexactly(size)).decode()

    async def close(self) -> None:
        self._writer.close()


async def held(server: Server, size: int) -> None:
    """Wait until the bodies hold this much."""
    for _ in range(2000):
        if server.bodies.held_bytes == size:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"they hold {server.bodies.held_bytes} bytes, not {size}")


def test_a_body_that_stops_arriving_is_given_up() -> None:
    async def run() -> None:
        async with serving(BodyLimits(idle_s=0.1)) as server:
            client = await Client.begin(server, 1000, 10)
            assert await client.answer() == "slow_body"
            assert server.bodies.held_bytes == 0
            await client.close()

    asyncio.run(run())


def test_a_body_that_trickles_is_given_up() -> None:
    async def run() -> None:
        async with serving(BodyLimits(idle_s=0.2, rate_min=1 << 20)) as server:
            client = await Client.begin(server, SIZE_MAX, 10)
            answer = asyncio.ensure_future(client.answer())
            while not answer.done():
                await client.send(b"x")
                await asyncio.sleep(0.05)
            assert await answer == "slow_body"
            await client.close()

    asyncio.run(run())


def test_the_slowest_body_makes_room_for_others() -> None:
    async def run() -> None:
        async with serving(BodyLimits(memory_bytes=600_000)) as server:
            stalled = await Client.begin(server, 500_000, 400_000)
            await held(server, 400_000)
            await asyncio.sleep(1.5)  # longer than a rate is told over
            quick = await Client.begin(server, 400_000, 400_000)
            assert await quick.answer() == "400000"
            assert await stalled.answer() == "too_many_bodies"
            await held(server, 0)
            for client in (stalled, quick):
                await client.close()

    asyncio.run(run())


def test_a_body_that_is_too_large_is_refused_before_it_is_held() -> None:
    async def run() -> None:
        async with serving(BodyLimits()) as server:
            client = await Client.begin(server, SIZE_MAX + 1, 0)
            assert await client.answer() == "request_too_large"
            await client.close()

    asyncio.run(run())


def test_a_budget_is_never_exceeded_and_serves_in_order() -> None:
    async def run() -> None:
        budget = MemoryBudget(100)
        served: list[int] = []
        seen: list[int] = []

        async def work(number: int, size: int, actual: int) -> None:
            async with budget.reserve(size) as use:
                served.append(number)
                seen.append(budget.reserved)
                await asyncio.sleep(0)
                use(actual)
                await asyncio.sleep(0.01)

        sizes = [(60, 60), (60, 10), (30, 30), (500, 5), (40, 40)]
        tasks = [asyncio.ensure_future(work(number, *each)) for number, each in enumerate(sizes)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert served == [0, 1, 3, 4]
        assert max(seen) <= 100
        assert budget.reserved == 0

    asyncio.run(run())


def test_others_have_their_turn_while_rows_are_parsed() -> None:
    async def run() -> int:
        turns = 0
        parsing = asyncio.ensure_future(asyncio.to_thread(read_rows, Format("yson"), b"{data=[" + b"1;" * 3_000_000 + b"]};"))
        while not parsing.done():
            await asyncio.sleep(0)
            turns += 1
        assert len(await parsing) == 1
        return turns

    # One row holds Python's lock unless the parser asks for its bytes piece by piece.
    assert asyncio.run(run()) > 10
