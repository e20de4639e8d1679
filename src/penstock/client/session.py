"""What the parts of one client share: its connections, and how calls that block are run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from penstock import __version__
from penstock.client.admin_api import AdminApi
from penstock.client.identity import Identity
from penstock.client.listeners import find_listeners
from penstock.client.stream_calls import StreamCalls
from penstock.core.errors import ConfigError
from penstock.kafka.client import ClientOptions, Network, ProducerClient, SettingNames, parse_addresses

T = TypeVar("T")

PAGE = 500


class ConnectionSettings(NamedTuple):
    """How a client reaches a cluster."""

    bootstrap: str
    identity: Identity
    http: str | None
    stream: str | None
    timeout_s: float


class BlockingCalls(Protocol):
    """Where calls run that block: gRPC's and HTTP's."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run one to its end."""
        ...


class CallerThread:
    """Runs them in the thread that asks; for the blocking client."""

    async def run(self, work: Callable[[], T]) -> T:
        """As `BlockingCalls` says."""
        return work()


class OtherThreads:
    """Runs them in threads beside the event loop."""

    async def run(self, work: Callable[[], T]) -> T:
        """As `BlockingCalls` says."""
        import asyncio  # commands, which wait for one thing at a time, do without

        return await asyncio.to_thread(work)


class Session:
    """The connections of one client. Those of the admin API and of streams are made when they are first used, at the addresses
    that the node tells unless they are given."""

    def __init__(self, settings: ConnectionSettings, network: Network, calls: BlockingCalls) -> None:
        self._settings = settings
        self._calls = calls
        self._admin: AdminApi | None = None
        self._streams: StreamCalls | None = None
        self.kafka = ProducerClient(
            ClientOptions(
                bootstrap=parse_addresses(settings.bootstrap, "bootstrap"),
                client_id=f"penstock-python-{__version__}",
                request_timeout_s=settings.timeout_s,
                api_timeout_s=settings.timeout_s,
                security=settings.identity.security,
                names=SettingNames("bootstrap", "timeout_s", "user", "user", "tls_ca"),
                # One address is a node that runs or does not; in a cluster another takes over from one that is lost.
                waits_for_first_node="," in settings.bootstrap,
            ),
            network,
        )

    def close(self) -> None:
        """Hang up everywhere."""
        self.kafka.close()
        if self._streams is not None:
            self._streams.close()
            self._streams = None

    async def run(self, work: Callable[[], T]) -> T:
        """Run something that blocks."""
        return await self._calls.run(work)

    async def call(self, method: str, path: str, body: object = None) -> Any:
        """Call the admin API."""
        if self._admin is None:
            address = self._settings.http or await self._listener("http")
            self._admin = AdminApi(address, self._settings.identity, self._settings.timeout_s)
        admin = self._admin
        return await self._calls.run(lambda: admin.call(method, path, body))

    async def get(self, path: str, kind: type[T]) -> T:
        """Get something from the admin API, in its type."""
        return msgspec.convert(await self.call("GET", path), kind)

    async def get_list(self, path: str, kind: type[T]) -> list[T]:
        """Get a whole list from the admin API, page by page."""
        items: list[T] = []
        joint = "&" if "?" in path else "?"
        while True:
            page = await self.call("GET", f"{path}{joint}limit={PAGE}&offset={len(items)}")
            items += msgspec.convert(page["items"], list[kind])  # type: ignore[valid-type]  # a type at run time
            if len(items) >= page["total"] or not page["items"]:
                return items

    async def streams(self) -> StreamCalls:
        """The calls of streams."""
        if self._streams is None:
            address = self._settings.stream or await self._listener("stream")
            try:
                self._streams = StreamCalls(address, self._settings.identity, self._settings.timeout_s)
            except ModuleNotFoundError as error:
                raise ConfigError(f"{error.name} is not installed; run: pip install 'penstock[stream]'") from error
        return self._streams

    async def _listener(self, kind: str) -> str:
        address = (await find_listeners(self.kafka)).get(kind)
        if address is None:
            raise ConfigError(
                f"{self._settings.bootstrap} has no {kind} listener; set {kind}_port of the node, or give the client {kind}=..."
            )
        return address
