"""One bidirectional gRPC stream, which ends with a status."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import grpc

from penstock.broker import BadTokenError
from penstock.core.errors import ClosedError, PenstockError
from penstock.core.probe import OK, REFUSED, RequestProbe
from penstock.gateway.ydb.protos import Status
from penstock.gateway.ydb.sign_in import Caller
from penstock.gateway.ydb.statuses import decode_message, issues_of, status_of

log = logging.getLogger(__name__)

REFUSAL_TIMEOUT_S = 5.0


class ClientGoneError(ClosedError):
    """The client has disconnected."""

    code = "client_gone"


class Stream:
    """The server's end of a stream. One task receives, one sends."""

    def __init__(self, context: Any, protos: Any, caller: Caller, database: str, probe: RequestProbe) -> None:
        self.probe = probe
        self._context = context
        self._from_client = protos.FromClient
        self._from_server = protos.FromServer
        self.caller = caller
        self.database = database
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sending: asyncio.Future[None] | None = None

    async def receive(self) -> Any | None:
        """The next message of the client. Returns None at the end."""
        message = await self.receive_encoded()
        return None if message is None else self.decode(message)

    async def receive_encoded(self) -> bytes | None:
        """The next message of the client, still encoded. Returns None at the end."""
        message = await self._context.read()
        return None if message is grpc.aio.EOF else message

    def decode(self, message: bytes) -> Any:
        """Decode a message of the client."""
        return decode_message(self._from_client.FromString, message)

    async def send(self, **message: Any) -> None:
        """Send one message; waits for flow control."""
        await self.send_encoded(self._from_server(status=Status.SUCCESS, **message).SerializeToString())

    async def send_encoded(self, message: bytes) -> None:
        """Send one encoded message."""
        # If the sender is cancelled, the message is still in flight, and the next must not overtake it.
        self._sending = asyncio.ensure_future(self._write(message))
        self._sending.add_done_callback(_retrieve_error)
        await asyncio.shield(self._sending)

    async def _write(self, message: bytes) -> None:
        try:
            await self._context.write(message)
        except grpc.aio.InternalError as error:
            raise ClientGoneError("the client has disconnected") from error

    async def refuse(self, error: PenstockError) -> None:
        """Send the status that ends the stream, unless the client does not read."""
        try:
            async with asyncio.timeout(REFUSAL_TIMEOUT_S):
                if self._sending is not None:
                    await asyncio.shield(self._sending)
                refusal = self._from_server(status=status_of(error), issues=issues_of(error))
                await self._write(refusal.SerializeToString())
        except ClientGoneError:
            return
        except TimeoutError:
            await self._context.abort(grpc.StatusCode.ABORTED, str(error))

    def end(self, error: PenstockError) -> None:
        """End the stream with an error, in any state."""
        if not self.ended.done():
            self.ended.set_exception(error)

    async def run(self, *jobs: Coroutine[Any, Any, None]) -> None:
        """Run jobs until one of them ends, fails, or the stream is ended. Raises the error of the first."""
        tasks = [asyncio.ensure_future(job) for job in jobs]
        try:
            done, _ = await asyncio.wait([*tasks, self.ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.ended.cancel()
        for ended in done:
            ended.result()


async def serve_stream(stream: Stream, job: Coroutine[Any, Any, None]) -> str:
    """Run the job of a stream and send the status of its error. Returns the outcome."""
    try:
        await job
    except ClientGoneError:
        log.debug("a client of %s disconnected", stream.caller.principal)
    except BadTokenError:
        raise  # answered as a gRPC status
    except PenstockError as error:
        log.debug("a stream of %s ends: %s", stream.caller.principal, error)
        await stream.refuse(error)
        return REFUSED
    finally:
        if stream.ended.done() and not stream.ended.cancelled():
            stream.ended.exception()  # mark as retrieved
    return OK


def _retrieve_error(sending: asyncio.Future[None]) -> None:
    """Mark the error as retrieved: its sender may be cancelled by then."""
    if not sending.cancelled():
        sending.exception()
