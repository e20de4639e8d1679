"""A stream of the Topic service without the SDK, for clients that do not behave."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import grpc

from penstock.gateway.ydb.protos import topic

TIMEOUT_S = 30


class RawStream:
    """One stream; messages are given as fields of what a client sends."""

    def __init__(self, port: str, name: str, token: str = "") -> None:
        self._protos = getattr(topic, f"{name}Message")
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_receive_message_length", -1)])
        call = self._channel.stream_stream(
            f"/Ydb.Topic.V1.TopicService/{name}",
            request_serializer=self._protos.FromClient.SerializeToString,
            response_deserializer=self._protos.FromServer.FromString,
        )
        self._outgoing: list[Any] = []
        self._more = _Requests()
        metadata = [("x-ydb-database", "/local"), *([("x-ydb-auth-ticket", token)] if token else [])]
        self._answers = call(self._more, timeout=TIMEOUT_S, metadata=metadata)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._answers.cancel()
        self._more.close()
        self._channel.close()

    def send(self, **fields: Any) -> None:
        """Send one message."""
        self._more.put(self._protos.FromClient(**fields))

    def receive(self) -> Any:
        """The next message of the server."""
        return next(self._answers)

    def finish(self) -> list[Any]:
        """Send nothing more; what else the server sends until it ends the stream."""
        self._more.close()
        return list(self._answers)


class _Requests:
    """What is to be sent, as gRPC asks for it."""

    def __init__(self) -> None:
        from queue import Queue

        self._queue: Queue[Any] = Queue()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        message = self._queue.get()
        if message is None:
            raise StopIteration
        return message

    def put(self, message: Any) -> None:
        self._queue.put(message)

    def close(self) -> None:
        self._queue.put(None)
