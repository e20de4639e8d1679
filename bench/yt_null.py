"""An HTTP proxy of YT that does nothing: it reads what is sent, keeps none of it, and answers with what was prepared.

What a client reaches against it is what aiohttp itself can do; run as `python -m bench.yt_null`, it prints its port."""

from __future__ import annotations

import asyncio

import uvloop
from aiohttp import web

ROW = b'{"$tablet_index"=0;"$row_index"=%d;"data"="' + b"x" * 100 + b'";"number"=%d;};'
ROWS = 10_000


async def main() -> None:
    """Serve until killed."""
    rows = b"".join(ROW % (number, number) for number in range(ROWS))

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=rows if request.match_info["command"] == "pull_consumer" else b"{}")

    app = web.Application(client_max_size=0)
    app.add_routes([web.route("*", "/api/v4/{command}", answer)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
