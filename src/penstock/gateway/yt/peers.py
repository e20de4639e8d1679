"""Clients of other clusters, by the names that paths use. They speak the same protocol as any YT client."""

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
    """Another cluster does not answer. The command may have been executed; retry."""

    code = "peer_unavailable"


class Peers:
    """The clusters in the setting `peer_cluster`."""

    def __init__(self, addresses: Mapping[str, str], token: str | None = None) -> None:
        self._authorization = None if token is None else f"OAuth {token}"
        self._addresses = {name: address.rstrip("/") for name, address in addresses.items()}
        self._session: aiohttp.ClientSession | None = None

    @property
    def has_token(self) -> bool:
        """Whether this cluster can authenticate itself to others."""
        return self._authorization is not None

    def knows(self, cluster: str) -> bool:
        """Whether the address of a cluster is configured."""
        return cluster in self._addresses

    def names(self) -> list[str]:
        """The names of all configured clusters."""
        return sorted(self._addresses)

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def execute(
        self, cluster: str, method: str, command: str, parameters: Mapping[str, Any], *, authorization: str | None = None
    ) -> tuple[bytes, Mapping[str, str]]:
        """Execute a command on another cluster. Returns the body and the headers of its response; raises the YtError it answered.
        The command runs with the rights of `authorization`, or else of this cluster, which authenticates itself if it can."""
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
                method,
                f"{address}/api/v4/{command}",
                data=text if method == "POST" else None,
                headers=headers,
                allow_redirects=False,  # the sign-in is for this address
            ) as response:
                body = await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise PeerUnavailableError(f"cluster {cluster!r} at {address} does not answer: {error!r}") from error
        if response.status != 200:
            raise _error_of(cluster, response.status, body)
        return body, response.headers

    async def consumer_offsets(self, consumer: Ref, queue: Ref) -> dict[int, int]:
        """The committed offsets of a consumer of another cluster in a queue, by partition."""
        query = (
            f"partition_index, offset from [{consumer.path}] "
            f"where queue_cluster = {_quote(queue.cluster)} and queue_path = {_quote(queue.path)}"
        )
        body, _ = await self.execute(consumer.cluster, "GET", "select_rows", {"query": query, "output_format": "yson"})
        return {int(row["partition_index"]): int(row["offset"]) for row in read_rows(Format("yson"), body)}

    async def queue_partitions(self, queue: Ref) -> list[dict[str, Any]]:
        """The partitions of a queue of another cluster, as in `@queue_partitions`."""
        parameters = {"path": f"{queue.path}/@queue_partitions", "output_format": "json", "return_only_value": True}
        body, _ = await self.execute(queue.cluster, "GET", "get", parameters)
        partitions: list[dict[str, Any]] = json.loads(body)
        return partitions

    async def row_at(self, queue: Ref, partition: int, offset: int) -> RowPlace:
        """When the first row from an offset on of a queue of another cluster was committed, the weight of all rows before it, and
        how many follow."""
        parameters = {"queue_path": queue.path, "partition_index": partition, "offset": offset}
        body, _ = await self.execute(queue.cluster, "GET", PLACE_COMMAND, {**parameters, "output_format": "json"})
        place = json.loads(body)
        return RowPlace(place["commit_ms"], place["weight"], int(place["unread"]))

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
            self._session = aiohttp.ClientSession(timeout=timeout)
        return self._session


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _error_of(cluster: str, status: int, body: bytes) -> YtError | PeerUnavailableError:
    try:
        fields = json.loads(body)
        return YtError(int(fields["code"]), str(fields["message"]), fields.get("attributes"), fields.get("inner_errors", ()))
    except (ValueError, KeyError, TypeError):
        return PeerUnavailableError(f"cluster {cluster!r} answered with status {status}")
