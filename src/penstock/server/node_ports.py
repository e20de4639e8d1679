"""The ports of a node's gateways, which stay open when it begins or ends to lead: who connects in between waits for the next
listener. Kafka clients and the schema registry have listeners of their own that outlive a role."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.gateway.http_port import HttpPort
from penstock.server.config import NodeConfig
from penstock.server.errors import BadSettingError

if TYPE_CHECKING:
    from penstock.gateway.grpc_server import GrpcServer


class NodePorts:
    """Opened by the first listener that uses them, and open until `close`."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._http: dict[str, HttpPort] = {}
        self._grpc: dict[str, GrpcServer] = {}

    def http(self, key: str) -> HttpPort:
        """The port of a setting that has a number."""
        port = self._http.get(key)
        if port is None:
            port = self._http[key] = HttpPort(self._config.host, getattr(self._config, key))
        return port

    def ydb(self) -> GrpcServer:
        """The server for YDB's clients, whose port is set. Raises BadSettingError if a package is missing."""
        if "ydb" not in self._grpc:
            try:
                # Only those who want it need what it is made with.
                from penstock.gateway.ydb import ydb_server
            except ModuleNotFoundError as error:
                raise BadSettingError(
                    f"ydb_port is set, but {error.name} is not installed; run: pip install 'penstock[ydb]', or set it to none"
                ) from error
            self._keep("ydb", ydb_server(self._config.host, self._config.ydb_port or 0, self._certificate()))
        return self._grpc["ydb"]

    def stream(self) -> GrpcServer:
        """The server for clients of streams, whose port is set. Raises BadSettingError if a package is missing."""
        if "stream" not in self._grpc:
            try:
                from penstock.gateway.stream import stream_server
            except ModuleNotFoundError as error:
                raise BadSettingError(
                    f"stream_port is set, but {error.name} is not installed; "
                    "run: pip install 'penstock[stream]', or set it to none"
                ) from error
            self._keep("stream", stream_server(self._config.host, self._config.stream_port or 0, self._certificate()))
        return self._grpc["stream"]

    async def close(self) -> None:
        """Refuse connections as soon as the listeners that use the ports now have ended. May be called again."""
        for port in self._http.values():
            port.close()
        for server in self._grpc.values():
            await server.close()

    def _keep(self, name: str, server: GrpcServer) -> None:
        server.is_kept = True
        self._grpc[name] = server

    def _certificate(self) -> tuple[Path, Path] | None:
        config = self._config
        return None if config.tls_cert is None or config.tls_key is None else (config.tls_cert, config.tls_key)
