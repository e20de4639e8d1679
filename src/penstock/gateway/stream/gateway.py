"""The listener for stream clients: a server of gRPC with health and reflection."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from penstock.gateway import minitoolstream as protos
from penstock.gateway.stream.admission import Admission
from penstock.gateway.stream.services import handlers

log = logging.getLogger(__name__)

MESSAGE_BYTES_MAX: Final = 64 << 20
CALLS_MAX: Final = 10_000  # under way at a time, followers among them
SERVICES: Final = (f"{protos.PACKAGE}.IngressService", f"{protos.PACKAGE}.EgressService")


class StreamGateway:
    """Serves streams over gRPC. Make it, `start` it, `stop` it."""

    def __init__(
        self, admission: Admission, *, host: str, port: int, drain_timeout_s: float, tls: tuple[Path, Path] | None = None
    ) -> None:
        self._admission = admission
        self._host = host
        self.port = port
        self._drain_timeout_s = drain_timeout_s
        self._tls = tls  # certificate and key
        self.probe = admission.probe
        self._server: Any = None
        self._health: Any = None

    @property
    def connections(self) -> int:
        """How many clients have a call under way; gRPC does not tell of others."""
        return len(self._admission.calling)

    async def start(self) -> None:
        """Listen. OSError if the port cannot be had."""
        # What one client sends while another does is not to be held back: the broker has limits of its own.
        options = [
            ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
            ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
            ("grpc.so_reuseport", 0),
        ]
        self._server = grpc.aio.server(options=options, maximum_concurrent_rpcs=CALLS_MAX)
        self._server.add_generic_rpc_handlers(tuple(handlers(self._admission)))
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (*SERVICES, health.SERVICE_NAME)
        for name in ("", *names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), self._server)
        host = f"[{self._host}]" if ":" in self._host else self._host
        try:
            port = self._add_port(f"{host}:{self.port}")
        except RuntimeError as error:
            raise OSError(str(error)) from error
        if port == 0:
            raise OSError("the address is in use, or not of this machine")
        self.port = port
        await self._server.start()

    async def stop(self) -> None:
        """Take no more calls; those under way have a while to end, and followers are told to come back."""
        self._admission.close()
        await self._health.enter_graceful_shutdown()
        await self._server.stop(self._drain_timeout_s)

    def _add_port(self, address: str) -> int:
        if self._tls is None:
            return int(self._server.add_insecure_port(address))
        certificate, key = (path.read_bytes() for path in self._tls)
        return int(self._server.add_secure_port(address, grpc.ssl_server_credentials([(key, certificate)])))
