"""/peers: the consoles of other clusters in the settings, and whether each is reachable.

A browser goes to the address of a peer itself: nothing of one cluster is forwarded to another, no credentials and no data. This
node only asks each address for /readyz, which needs no user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
)

from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Nothing, Page, Resource, ResponseModel, Route

ASK_S: Final = 2.0
FRESH_S: Final = 5.0

PeerState = Literal["up", "starting", "away", "unknown"]


class PeerView(ResponseModel, frozen=True):
    """Another cluster. `starting` answers and is not ready, `unknown` has a certificate that this machine does not trust."""

    name: str
    url: str
    state: PeerState
    message: Annotated[str, msgspec.Meta(description="why it is not up; empty if it is")]


class ConsolePeerResource(Resource):
    """Other clusters."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._session: ClientSession | None = None
        self._asking = asyncio.Lock()
        self._views: list[PeerView] = []
        self._asked_s = -FRESH_S

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        return [Route("GET", "/peers", self.show, "the consoles of other clusters, and whether they answer this node")]

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def show(self, call: Call[Nothing, Nothing, Nothing]) -> Page[PeerView]:
        """GET /peers. Every user may: the addresses are in the navigation of the console."""
        peers = self._context.config.console_peers or {}
        clock = self._context.clock
        async with self._asking:
            if peers and clock.monotonic() - self._asked_s > FRESH_S:
                self._views = await self._ask_all(peers)
                self._asked_s = clock.monotonic()
        return Page(self._views, len(self._views))

    async def _ask_all(self, peers: Mapping[str, str]) -> list[PeerView]:
        if self._session is None:
            self._session = ClientSession(timeout=ClientTimeout(total=ASK_S), cookie_jar=DummyCookieJar())
        session = self._session

        async def ask(name: str, address: str) -> PeerView:
            url = address.rstrip("/")
            state, message = await _state_of(session, url)
            return PeerView(name=name, url=url, state=state, message=message)

        return await asyncio.gather(*(ask(name, address) for name, address in peers.items()))


async def _state_of(session: ClientSession, url: str) -> tuple[PeerState, str]:
    try:
        async with session.get(f"{url}/readyz", allow_redirects=False) as answer:
            if answer.ok:
                return "up", ""
            return "starting", f"{url} answers with status {answer.status}: it starts, stops or is not well"
    except ClientConnectorCertificateError:
        return "unknown", f"this machine does not trust the certificate of {url}; your browser may"
    except TimeoutError:
        return "away", f"{url} does not answer within {ASK_S:g} s"
    except ClientConnectorError as error:
        return "away", f"{url} does not answer: {error.os_error.strerror or error}"
    except ClientError as error:
        return "away", f"{url} does not answer: {error}"
