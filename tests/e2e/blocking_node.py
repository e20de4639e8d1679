"""`penstock up` with one more address of its HTTP listener: GET /block keeps the event loop for a while, as a defect would."""

from __future__ import annotations

import sys
import time

from aiohttp import web

from penstock.cli import up
from penstock.cli.main import main

BLOCK_S = 3.0


async def hold_up_the_loop(request: web.Request) -> web.Response:
    """Wait without awaiting."""
    time.sleep(BLOCK_S)  # noqa: ASYNC251 - this is what the watchdog is there for
    return web.Response()


def _mount(app: web.Application) -> None:
    app.router.add_get("/block", hold_up_the_loop)


if __name__ == "__main__":
    up.mount_console = _mount
    sys.exit(main())
