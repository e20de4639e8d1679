"""That the node is about to stop, as those know it who would answer for ever."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

ENDING: Final = web.AppKey("ending", asyncio.Event)
