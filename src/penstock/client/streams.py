"""Streams of a cluster, as coroutines over gRPC; lists come from the admin API. Needs the extra `stream`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

from penstock.client.messages import Content, encoded
from penstock.client.session import Session
from penstock.client.views import Subject
from penstock.core.errors import PenstockError, UnavailableError

CHUNK_BYTES: Final = 1 << 20

T = TypeVar("T")


class StreamUnavailableError(UnavailableError):
    """The node cannot serve the call now, or did not answer in time; a publish may have been stored."""

    code = "stream_unavailable"


class StreamRefusedError(PenstockError):
    """The node refused a call. `status` is the name of gRPC's status, such as NOT_FOUND."""

    code = "stream_refused"

    def __init__(self, message: str, status: str) -> None:
        super().__init__(f"{message} ({status})")
        self.status = status


class StreamMessage(NamedTuple):
    """A message of a stream. Of a payload too large to come along, `size` tells the bytes and `data` is None: download it."""

    subject: str
    sequence: int
    data: bytes | None
    headers: dict[str, str]
    timestamp_ms: int
    size: int


StreamMessages = list[StreamMessage]  # `list` is a method of the class below


class AsyncStreams:
    """Subjects, their messages and durable consumers."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self, *, search: str = "") -> list[Subject]:
        """Return the subjects by name."""
        return await self._session.get_list(f"/streams?search={quote(search)}", Subject)

    async def publish(self, subject: str, data: Content, *, headers: Mapping[str, str] | None = None) -> int:
        """Publish one message of up to 64 MiB. Returns its sequence; the message is stored then."""
        answer = await self._ask(
            "IngressService/Publish", "PublishResponse", subject=subject, data=encoded(data) or b"", headers=dict(headers or {})
        )
        return _sequence(answer)

    async def upload(self, subject: str, path: Path | str, *, headers: Mapping[str, str] | None = None) -> int:
        """Publish a file of any size. Returns its sequence."""
        calls = await self._session.streams()
        file = Path(path)

        def requests() -> Iterator[Any]:
            named = {"file-name": file.name, **(headers or {})}
            yield calls.protos.UploadRequest(
                header=calls.protos.UploadHeader(subject=subject, headers=named, size=file.stat().st_size)
            )
            with file.open("rb") as content:
                while chunk := content.read(CHUNK_BYTES):
                    yield calls.protos.UploadRequest(chunk=chunk)

        return _sequence(await self._run(lambda: calls.upload(requests())))

    async def download(self, sequence: int, path: Path | str) -> int:
        """Save the payload of a message in a file, which takes its place when all is in it. Returns its size."""
        calls = await self._session.streams()
        target = Path(path)

        def work() -> int:
            part, done = target.with_name(f"{target.name}.part"), 0
            try:
                with part.open("wb") as file:
                    for answer in calls.stream("EgressService/Download", "DownloadResponse", sequence=sequence):
                        done += file.write(answer.chunk)
                part.replace(target)
            finally:
                part.unlink(missing_ok=True)
            return done

        return await self._run(work)

    async def read(self, subject: str, *, start: int = 0, limit: int = 1000) -> StreamMessages:
        """Return messages from a sequence on. `subject` may be a pattern: `orders.*`, `orders.>`."""
        return await self._messages("EgressService/Read", subject=subject, from_sequence=start, limit=limit)

    async def fetch(self, subject: str, durable: str, *, limit: int = 100) -> StreamMessages:
        """Return what a durable consumer has not acknowledged; `ack` moves it on."""
        return await self._messages("EgressService/Fetch", subject=subject, durable_name=durable, batch_size=limit)

    async def ack(self, subject: str, durable: str, sequence: int) -> None:
        """Acknowledge a message, and without a rule of delivery all before it."""
        await self._ask("EgressService/AckMessage", "AckResponse", subject=subject, durable_name=durable, sequence=sequence)

    async def last_sequence(self, subject: str) -> int:
        """Return the last readable sequence of a subject."""
        answer = await self._ask("EgressService/GetLastSequence", "GetLastSequenceResponse", subject=subject)
        return int(answer.last_sequence)

    async def _messages(self, method: str, **fields: Any) -> StreamMessages:
        calls = await self._session.streams()
        return await self._run(lambda: [_message(item) for item in calls.stream(method, "Message", **fields)])

    async def _ask(self, method: str, answer: str, **fields: Any) -> Any:
        calls = await self._session.streams()
        return await self._run(lambda: calls.ask(method, answer, **fields))

    async def _run(self, work: Callable[[], T]) -> T:
        import grpc

        try:
            return await self._session.run(work)
        except grpc.RpcError as error:
            status = error.code()
            if status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise StreamUnavailableError(f"{error.details()} ({status.name})") from error
            raise StreamRefusedError(error.details(), status.name) from error


def _sequence(published: Any) -> int:
    if published.status_code:
        raise StreamRefusedError(published.error_message, "REFUSED")
    return int(published.sequence)


def _message(item: Any) -> StreamMessage:
    size = item.headers.get("penstock.size")
    is_here = item.data or size is None
    time_ms = item.timestamp.seconds * 1000 + item.timestamp.nanos // 1_000_000
    data = bytes(item.data) if is_here else None
    return StreamMessage(item.subject, item.sequence, data, dict(item.headers), time_ms, len(item.data) if is_here else int(size))
