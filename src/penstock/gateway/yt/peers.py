"""Other clusters, by the names that paths use: spoken to in the same protocol as by any client."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import aiohttp

from penstock.broker.queue_agent import RowPlace
from penstock.broker.registrations import Ref
from penstock.core.errors import UnavailableError
from penstock.gateway.yt.errors import GENERIC, YtError
from penstock.gateway.yt.formats import Format, read_rows, text_yson

PEER_HEADER = "X-Penstock-Peer"
PLACE_COMMAND = "penstock_row_place"
TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 3.0


class PeerUnavailableError(UnavailableError):
    """Another cluster does not answer; what it was asked may have been done. Try again."""

    code = "peer_unavailable"


class Peers:
    """The clusters that this one was told of."""

    def __init__(self, addresses: Mapping[str, str], token: str | None = None) -> None:
        self._authorization = None if token is None else f"OAuth {token}"
        self._addresses = {name: address.rstrip("/") for name, address in addresses.items()}
        self._session: aiohttp.ClientSession | None = None

    @property
    def has_token(self) -> bool:
        """Whether this cluster can make itself known."""
        return self._authorization is not None

    def knows(self, cluster: str) -> bool:
        """Whether this cluster was told where another is."""
        return cluster in self._addresses

    def names(self) -> list[str]:
        """Names of all of them."""
        return sorted(self._addresses)

    async def close(self) -> None:
        """End all connections."""
        if self._session is not None:
            await self._session.close()

    async def ask(
        self, cluster: str, method: str, command: str, parameters: Mapping[str, Any], *, authorization: str | None = None
    ) -> tuple[bytes, Mapping[str, str]]:
        """Carry out a command on another cluster: the body of its answer and its headers. YtError as it gave it. It is asked in
        the name of whoever is given, or of this cluster, which makes itself known in any case if it has a token."""
        address = self._addresses.get(cluster)
        if address is None:
            known = ", ".join(self.names()) or "none"
            raise YtError(GENERIC, f"cluster {cluster!r} is not known here (known: {known}); name it with --peer-cluster")
        text = text_yson(dict(parameters))
        headers = {"X-YT-Header-Format": "<format=text>yson", "Accept-Encoding": "identity"}
        if self._authorization is not None:
            headers[PEER_HEADER] = self._authorization
        authorization = authorization or self._authorization
        if authorization is not None:
            headers["Authorization"] = authorization
        if method == "POST":
            headers["Content-Type"] = "application/x-yt-yson-text"
        else:
            headers["X-YT-Parameters"] = text.decode("ascii")
        try:
            async with self._open().request(
                method, f"{address}/api/v4/{command}", data=text if method == "POST" else None, headers=headers
            ) as response:
                body = await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise PeerUnavailableError(f"cluster {cluster!r} at {address} does not answer: {error!r}") from error
        if response.status != 200:
            raise _error_of(cluster, response.status, body)
        return body, response.headers

    async def consumer_offsets(self, consumer: Ref, queue: Ref) -> dict[int, int]:
        """Where a consumer of another cluster stands in a queue, by partition."""
        query = (
            f"partition_index, offset from [{consumer.path}] "
            f"where queue_cluster = {_quoted(queue.cluster)} and queue_path = {_quoted(queue.path)}"
        )
        body, _ = await self.ask(consumer.cluster, "GET", "select_rows", {"query": query, "output_format": "yson"})
        return {int(row["partition_index"]): int(row["offset"]) for row in read_rows(Format("yson"), body)}

    async def queue_partitions(self, queue: Ref) -> list[dict[str, Any]]:
        """The partitions of a queue of another cluster, as `@queue_partitions` gives them."""
        parameters = {"path": f"{queue.path}/@queue_partitions", "output_format": "json", "return_only_value": True}
        body, _ = await self.ask(queue.cluster, "GET", "get", parameters)
        found: list[dict[str, Any]] = json.loads(body)
        return found

    async def row_at(self, queue: Ref, partition: int, offset: int) -> RowPlace:
        """When the first row from an offset on of a queue of another cluster was committed, the weight of all rows before it, and
        how many follow."""
        parameters = {"queue_path": queue.path, "partition_index": partition, "offset": offset}
        body, _ = await self.ask(queue.cluster, "GET", PLACE_COMMAND, {**parameters, "output_format": "json"})
        found = json.loads(body)
        return RowPlace(found["commit_ms"], found["weight"], int(found["unread"]))

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
            self._session = aiohttp.ClientSession(timeout=timeout)
        return self._session


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _error_of(cluster: str, status: int, body: bytes) -> YtError | PeerUnavailableError:
    try:
        fields = json.loads(body)
        return YtError(int(fields["code"]), str(fields["message"]), fields.get("attributes"), fields.get("inner_errors", ()))
    except (ValueError, KeyError, TypeError):
        return PeerUnavailableError(f"cluster {cluster!r} answered with status {status}")
