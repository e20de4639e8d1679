"""One bidirectional stream: messages in, messages out, and an end with a status."""

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
from penstock.gateway.ydb.statuses import decoded, issues_of, status_of

log = logging.getLogger(__name__)

LAST_WORD_S = 5.0


class ClientGoneError(ClosedError):
    """There is nobody to be told anything any more."""

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
        """The next message of the client; None when it has no more."""
        message = await self.receive_encoded()
        return None if message is None else self.decoded(message)

    async def receive_encoded(self) -> bytes | None:
        """Likewise, as it came."""
        message = await self._context.read()
        return None if message is grpc.aio.EOF else message

    def decoded(self, message: bytes) -> Any:
        """A message of the client that came so."""
        return decoded(self._from_client.FromString, message)

    async def send(self, **message: Any) -> None:
        """Send one message; it waits while the client does not take any."""
        await self.send_encoded(self._from_server(status=Status.SUCCESS, **message).SerializeToString())

    async def send_encoded(self, message: bytes) -> None:
        """Send one message that is encoded already."""
        # Whoever sends may be cancelled; the message is then still on its way, and the next must not overtake it.
        self._sending = asyncio.ensure_future(self._write(message))
        self._sending.add_done_callback(_seen)
        await asyncio.shield(self._sending)

    async def _write(self, message: bytes) -> None:
        try:
            await self._context.write(message)
        except grpc.aio.InternalError as error:
            raise ClientGoneError("the client has gone away") from error

    async def refuse(self, error: PenstockError) -> None:
        """Say why the stream ends here, unless the client does not listen."""
        try:
            async with asyncio.timeout(LAST_WORD_S):
                if self._sending is not None:
                    await asyncio.shield(self._sending)
                refusal = self._from_server(status=status_of(error), issues=issues_of(error))
                await self._write(refusal.SerializeToString())
        except ClientGoneError:
            return
        except TimeoutError:
            await self._context.abort(grpc.StatusCode.ABORTED, str(error))

    def end(self, error: PenstockError) -> None:
        """End the stream, whatever it is doing."""
        if not self.ended.done():
            self.ended.set_exception(error)

    async def run(self, *jobs: Coroutine[Any, Any, None]) -> None:
        """Do several things until one is done, fails, or the stream is ended; an error of ours is told to the client."""
        tasks = [asyncio.ensure_future(job) for job in jobs]
        try:
            done, _ = await asyncio.wait([*tasks, self.ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.ended.cancel()
        for one in done:
            one.result()


async def served(stream: Stream, job: Coroutine[Any, Any, None]) -> str:
    """Carry a stream through to its end; how it ended."""
    try:
        await job
    except ClientGoneError:
        log.debug("a client of %s went away", stream.caller.principal)
    except BadTokenError:
        raise  # that is for gRPC to say
    except PenstockError as error:
        log.debug("a stream of %s ends: %s", stream.caller.principal, error)
        await stream.refuse(error)
        return REFUSED
    finally:
        if stream.ended.done() and not stream.ended.cancelled():
            stream.ended.exception()  # it was told, or came too late to be
    return OK


def _seen(sending: asyncio.Future[None]) -> None:
    """Whoever sent it may be gone when it fails; the failure is then nobody's."""
    if not sending.cancelled():
        sending.exception()
