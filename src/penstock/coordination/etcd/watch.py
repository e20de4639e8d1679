"""A watch on one endpoint of etcd, which notices within two seconds that the endpoint is frozen or cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from itertools import groupby
from typing import Any, Final, NoReturn

import grpc.aio

from penstock.coordination.etcd.connection import EtcdCallError, EtcdConnection
from penstock.coordination.etcd.failures import Failure, error_of, failure_of
from penstock.coordination.etcd.messages import EVENT_DELETE, message
from penstock.coordination.port import CompactedError, CoordinationUnavailableError, Entry, Event, RolledBackError

ASK_S: Final = 1.0
"""After so long without a word the endpoint is asked for one, and after as long again it is given up."""

_WATCH: Final = "/etcdserverpb.Watch/Watch"


class EtcdWatch:
    """One stream of changes.

    The revisions that etcd tells when it is asked for a sign of life are not used: before 3.5.8 they may be ahead of events that
    are still to come.
    """

    def __init__(self, connection: EtcdConnection, root: str, prefix: str, after: int) -> None:
        self._connection = connection
        self._root = root
        self._prefix = prefix
        self._after = after
        self._call: Any = None
        self._endpoint = 0

    async def events(self, current_revision: Callable[[], Awaitable[int]]) -> AsyncGenerator[tuple[Event, ...], None]:
        """Yield the events of each revision."""
        try:
            self._call, self._endpoint = await self._connection.open_stream(
                _WATCH, message("WatchRequest"), message("WatchResponse")
            )
        except EtcdCallError as error:
            raise error_of(error.failure, "a watch", error.details) from error
        await self._write(self._create_request())
        while True:
            response = await self._next()
            if response.canceled:
                self._raise_canceled(response)
            if response.created and response.header.revision < self._after:
                await self._check_not_rolled_back(current_revision)
            events = [_event_of(event, self._root) for event in response.events]
            for revision, group in groupby(events, key=lambda event: event.revision):
                if revision > self._after:
                    self._after = revision
                    yield tuple(group)

    def cancel(self) -> None:
        """End the stream."""
        if self._call is not None:
            self._call.cancel()

    def _create_request(self) -> Any:
        request = message("WatchRequest")()
        begin = (self._root + self._prefix).encode()
        request.create_request.key = begin
        request.create_request.range_end = begin[:-1] + bytes([begin[-1] + 1])
        request.create_request.start_revision = self._after + 1
        return request

    async def _next(self) -> Any:
        """The next response; asks for one if none comes."""
        reading = asyncio.ensure_future(self._call.read())
        try:
            done, _ = await asyncio.wait({reading}, timeout=ASK_S)
            if not done:
                request = message("WatchRequest")()
                request.progress_request.SetInParent()
                await self._write(request)
                done, _ = await asyncio.wait({reading}, timeout=ASK_S)
            if not done:
                self._fail(f"no word from the watch in {2 * ASK_S:g} s")
            response = await reading
        except grpc.aio.AioRpcError as error:
            self._fail_rpc(error)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        if response is grpc.aio.EOF:
            self._fail("the watch ended")
        return response

    async def _write(self, request: Any) -> None:
        try:
            async with asyncio.timeout(ASK_S):
                await self._call.write(request)
        except (TimeoutError, asyncio.InvalidStateError):
            self._fail("the watch takes no requests")
        except grpc.aio.AioRpcError as error:
            self._fail_rpc(error)

    async def _check_not_rolled_back(self, current_revision: Callable[[], Awaitable[int]]) -> None:
        """An endpoint behind the revision we watch from may only lag; all of etcd behind it was restored from an old copy."""
        revision = await current_revision()
        if revision < self._after:
            raise RolledBackError(
                f"etcd is at revision {revision} and was at {self._after} before: it was restored from an old copy"
            )

    def _raise_canceled(self, response: Any) -> NoReturn:
        if response.compact_revision:
            raise CompactedError(
                f"the changes after revision {self._after} are gone from etcd; those after {response.compact_revision} are kept"
            )
        failure = failure_of(grpc.StatusCode.UNKNOWN, response.cancel_reason)
        if failure is Failure.SIGN_IN:
            self._connection.forget_token()
            failure = Failure.ELSEWHERE
        raise error_of(failure, "a watch", response.cancel_reason or "etcd ended it")

    def _fail_rpc(self, error: grpc.aio.AioRpcError) -> NoReturn:
        details = f"{error.code().name}: {error.details()}"
        failure = failure_of(error.code(), details)
        if failure is Failure.SIGN_IN:
            self._connection.forget_token()
        elif failure is not Failure.ELSEWHERE:
            raise error_of(failure, "a watch", details) from error
        self._fail(details)

    def _fail(self, details: str) -> NoReturn:
        self._connection.note_failed(self._endpoint)
        raise CoordinationUnavailableError(f"a watch: {details}")


def entry_of(kv: Any, root: str) -> Entry:
    """An entry, its key without the prefix of the cluster."""
    return Entry(kv.key.decode()[len(root) :], kv.value, kv.mod_revision, kv.lease)


def _event_of(event: Any, root: str) -> Event:
    entry = entry_of(event.kv, root)
    return Event(entry.key, entry.revision, None if event.type == EVENT_DELETE else entry)
