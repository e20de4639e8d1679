"""A port that one HTTP listener after another serves: clients that connect in between wait, and are served by the next."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp import ClientSession, web

from penstock.gateway.http_port import HttpPort


async def started(port: HttpPort, answer: str, cleaned_up: list[str] | None = None) -> web.AppRunner:
    """A listener that answers every request with this; `cleaned_up` gets the answer of one that is no more."""

    async def say(request: web.Request) -> web.Response:
        return web.Response(text=answer)

    async def note(app: web.Application) -> None:
        if cleaned_up is not None:
            cleaned_up.append(answer)

    app = web.Application()
    app.router.add_get("/", say)
    app.on_cleanup.append(note)
    runner = web.AppRunner(app)
    await port.serve(runner, None)
    return runner


def test_who_connects_between_two_listeners_is_served_by_the_second() -> None:
    async def scenario() -> None:
        port = HttpPort("127.0.0.1", 0)
        first = await started(port, "first")
        async with ClientSession() as session:
            url = f"http://127.0.0.1:{port.port}/"
            assert await (await session.get(url)).text() == "first"
            await first.cleanup()
            asked = asyncio.create_task(session.get(url))
            await asyncio.sleep(0.1)
            assert not asked.done()
            second = await started(port, "second")
            assert await (await asked).text() == "second"
        await second.cleanup()
        port.close()

    asyncio.run(scenario())


def test_a_closed_port_refuses_connections_and_is_free() -> None:
    async def scenario() -> None:
        port = HttpPort("localhost", 0)  # which may stand for two addresses
        await (await started(port, "only")).cleanup()
        port.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port.port)
        other = HttpPort("localhost", port.port)
        await (await started(other, "other")).cleanup()
        other.close()

    asyncio.run(scenario())


def test_a_port_that_is_taken_is_refused_and_can_be_had_later() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = HttpPort("127.0.0.1", taken.getsockname()[1])
            cleaned_up: list[str] = []
            with pytest.raises(OSError, match="in use"):
                await started(port, "never", cleaned_up)
            assert cleaned_up == ["never"]
        await (await started(port, "now")).cleanup()
        port.close()

    asyncio.run(scenario())
