"""Forwards the HTTP requests of clients to the node that serves them, and its answers back, as they come."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web
from multidict import CIMultiDict
from yarl import URL

from penstock.gateway.forwarded_client import FORWARDED_HEADER, signed_client
from penstock.server.cluster.known_nodes import ServingNode
from penstock.server.config import NodeConfig

CONNECT_S: Final = 3.0
POOL_S: Final = 10.0  # to wait for a connection while all are in use
CONNECTIONS_MAX: Final = 1000  # each answer that goes on and on, such as a tail, has one
HEADER_BYTES_MAX: Final = 256 << 10  # YT's parameters are in headers
# What concerns one connection alone, and what was checked here already.
_OWN_HEADERS: Final = frozenset(
    {
        "connection",
        "host",
        "keep-alive",
        "origin",
        "proxy-authorization",
        "proxy-connection",
        "sec-fetch-site",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        FORWARDED_HEADER.lower(),
    }
)


class HttpForwarder:
    """Carries requests to whichever node serves at that time. `refuse` makes an answer with 503 of the reason why none does."""

    def __init__(
        self,
        serving: Callable[[], ServingNode],
        secret: bytes,
        tls: ssl.SSLContext | None,
        refuse: Callable[[str], web.Response],
    ) -> None:
        self._serving = serving
        self._secret = secret
        self._tls = tls
        self._refuse = refuse
        self._session: ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """The answer of the node that serves; 503 if there is none now."""
        node = self._serving()
        if (
            node.address is None or FORWARDED_HEADER in request.headers
        ):  # once is enough: that node may not know yet that it leads
            return self._refuse(f"no node serves this now, {node.name} is starting or away; try again in a moment")
        scheme = "http" if self._tls is None else "https"
        url = URL(f"{scheme}://{node.address}/{request.rel_url.raw_path_qs.removeprefix('/')}", encoded=True)
        headers = _passed_on(request.headers)
        headers[FORWARDED_HEADER] = signed_client(self._secret, request.remote or "", request.method, request.path_qs)
        response: web.StreamResponse | None = None
        try:
            async with self._open_session().request(
                request.method,
                url,
                headers=headers,
                data=request.content if request.body_exists else None,
                allow_redirects=False,
            ) as answer:
                response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=_passed_on(answer.headers))
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
        except (ClientError, TimeoutError) as error:
            if response is not None:
                raise ConnectionResetError(f"{node.name} has ended its answer early: {error}") from error
            return self._refuse(f"{node.name} serves this, at {node.address}, and cannot be reached from here: {error}")
        return response

    def _open_session(self) -> ClientSession:
        if self._session is None:
            self._session = ClientSession(
                connector=TCPConnector(limit=CONNECTIONS_MAX, ssl=True if self._tls is None else self._tls),
                timeout=ClientTimeout(total=None, connect=POOL_S, sock_connect=CONNECT_S),
                max_line_size=HEADER_BYTES_MAX,
                max_field_size=HEADER_BYTES_MAX,
                cookie_jar=DummyCookieJar(),  # the session of one client must not be sent for another
                auto_decompress=False,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            )
        return self._session


def client_tls(config: NodeConfig) -> ssl.SSLContext | None:
    """What other nodes of the cluster are known by: a certificate that the system, the CA between nodes, or the own certificate
    vouches for. None if listeners have no TLS."""
    if config.tls_cert is None:
        return None
    context = ssl.create_default_context()
    for file in (config.tls_cert, config.interconnect_ca):
        if file is not None:
            context.load_verify_locations(cadata=Path(file).read_text(encoding="ascii"))
    return context


def _passed_on(headers: Mapping[str, str]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _OWN_HEADERS)


def console_refusal(message: str) -> web.Response:
    """The admin API's answer that no node serves a request now."""
    error = {"code": "standby", "message": message}
    return web.json_response({"error": error}, status=503, headers={"Retry-After": "1"})
