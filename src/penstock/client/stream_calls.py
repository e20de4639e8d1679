"""The calls of streams over gRPC, with the user's name in each of them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from penstock.client.admin_api import LOOPBACK
from penstock.client.identity import Identity
from penstock.core.errors import ConfigError

MESSAGE_BYTES_MAX: Final = 64 << 20
INLINE_HEADER: Final = "penstock-inline-bytes"
INLINE_BYTES: Final = 1 << 20  # more is not for a terminal


class StreamCalls:
    """The calls of both services at one address. ModuleNotFoundError if the extra `stream` is not installed."""

    def __init__(
        self, address: str, identity: Identity, timeout_s: float, *, tls_name: str = "tls_ca", inline_bytes: int = INLINE_BYTES
    ) -> None:
        import grpc

        from penstock import minitoolstream

        self.protos: Any = minitoolstream
        self._timeout_s = timeout_s
        self._metadata = [*_sign_in(identity, address, tls_name), (INLINE_HEADER, str(inline_bytes))]
        options = [("grpc.max_receive_message_length", MESSAGE_BYTES_MAX), ("grpc.max_send_message_length", MESSAGE_BYTES_MAX)]
        if identity.tls_ca is None:
            self._channel: Any = grpc.insecure_channel(address, options=options)
        else:
            credentials = grpc.ssl_channel_credentials(Path(identity.tls_ca).read_bytes())
            self._channel = grpc.secure_channel(address, credentials, options=options)

    def __enter__(self) -> StreamCalls:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._channel.close()

    def ask(self, method: str, answer: str, **fields: Any) -> Any:
        """A call with one answer."""
        call = self._call(self._channel.unary_unary, method, answer)
        return call(self._request(method, fields), timeout=self._timeout_s, metadata=self._metadata)

    def stream(self, method: str, answer: str, *, timeout_s: float | None = None, **fields: Any) -> Iterator[Any]:
        """A call with many answers."""
        call = self._call(self._channel.unary_stream, method, answer)
        yield from call(self._request(method, fields), timeout=timeout_s, metadata=self._metadata)

    def upload(self, requests: Iterator[Any]) -> Any:
        """A payload in chunks. It may take however long."""
        return self._call(self._channel.stream_unary, "IngressService/Upload", "PublishResponse")(
            requests, metadata=self._metadata
        )

    def _request(self, method: str, fields: dict[str, Any]) -> Any:
        name = method.rpartition("/")[2]
        named = {"AckMessage": "AckRequest"}.get(name, f"{name}Request")
        return self.protos.message(named)(**fields)

    def _call(self, kind: Any, method: str, answer: str) -> Any:
        return kind(
            f"/{self.protos.PACKAGE}.{method}",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=self.protos.message(answer).FromString,
        )


def _sign_in(identity: Identity, address: str, tls_name: str) -> list[tuple[str, str]]:
    """Who the program is, with every call. A password goes over a network only within TLS."""
    if identity.user is None:
        return []
    if identity.tls_ca is None and address.rpartition(":")[0].strip("[]") not in LOOPBACK:
        raise ConfigError(f"the password of {identity.user!r} is not sent to {address} without TLS; give {tls_name}")
    token = base64.b64encode(f"{identity.user}:{identity.password}".encode()).decode()
    return [("authorization", f"Basic {token}")]
