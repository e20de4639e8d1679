"""What a node passes on to the one that serves, and what it keeps to itself."""

from __future__ import annotations

import asyncio

from aiohttp import ClientSession, DummyCookieJar, web

from penstock.server.cluster.http_forwarder import HttpForwarder, console_refusal
from penstock.server.cluster.known_nodes import ServingNode


def test_a_session_of_one_client_is_not_used_for_another() -> None:
    async def run() -> list[str]:
        seen = []

        async def serve(request: web.Request) -> web.Response:
            seen.append(request.headers.get("Cookie", ""))
            answer = web.Response()
            answer.set_cookie("session", "of the first client")
            return answer

        serving = web.Application()
        serving.router.add_route("*", "/{path:.*}", serve)
        address = f"localhost:{await _listen(serving)}"
        forwarder = HttpForwarder(lambda: ServingNode("node 1", address), b"secret", None, console_refusal)
        front = web.Application()
        front.router.add_route("*", "/{path:.*}", forwarder.forward)
        port = await _listen(front)
        for _ in range(2):
            async with ClientSession(cookie_jar=DummyCookieJar()) as client, client.get(f"http://127.0.0.1:{port}/") as answer:
                assert "session" in answer.headers["Set-Cookie"], "the client itself gets it"
        await forwarder.close()
        for runner in _runners:
            await runner.cleanup()
        return seen

    _runners: list[web.AppRunner] = []

    async def _listen(app: web.Application) -> int:
        runner = web.AppRunner(app)
        _runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "localhost", 0)
        await site.start()
        port: int = runner.addresses[0][1]
        return port

    assert asyncio.run(run()) == ["", ""]
