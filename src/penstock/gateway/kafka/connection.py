"""One client connection: requests are started in the order they arrive, and responses are sent in the same order.

Requests of one concurrent kind (Produce, Fetch or OffsetCommit) run together; any other waits until all before it are answered,
as in Kafka. A request that cannot start yet stays in the receive buffer and nothing more is read, so a connection holds a bounded
number of bytes. Responses that complete in the same turn of the event loop are sent in one write.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, cast

from penstock.core.errors import PenstockError
from penstock.gateway.kafka.apis.fetch import FetchCall
from penstock.gateway.kafka.apis.plain_produce import PlainProduce
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.dispatch import BEFORE_AUTHENTICATION, CALLS, TokenCall, token_request, unknown_version
from penstock.gateway.kafka.file_sender import FileSender
from penstock.gateway.kafka.forward_call import ForwardCall, needs_leader
from penstock.gateway.kafka.node import Node
from penstock.gateway.kafka.probe import AnyCall, begin_span
from penstock.gateway.kafka.security.sasl import ANONYMOUS, TOKEN_BYTES_MAX, SaslExchange, SaslStateError
from penstock.kafka.protocol import ProtocolError, UnsupportedVersionError, decode_request, keys
from penstock.kernels.frame_reader import BUFFER_MAX, SIZE_BYTES, FrameReader

log = logging.getLogger(__name__)

WRITE_BYTES_MAX = 4 << 20  # of replies handed to the transport at a time
JOIN_BYTES_MAX = 64 << 10  # small replies leave as one buffer
BUFFER_IDLE_S = 10.0  # after so long without a request, the receive buffer is freed
CONCURRENT = frozenset({keys.PRODUCE, keys.FETCH, keys.OFFSET_COMMIT})
_PRODUCE = keys.PRODUCE
_FETCH = keys.FETCH


class RequestPipeline:
    """The requests of one connection and their responses. `Connection` is this as a protocol of the event loop."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._memory = node.memory
        self._probe = node.probe
        self._options = node.options
        self._now = node.clock.monotonic
        self._loop = asyncio.get_running_loop()
        self.sasl = node.sasl_exchange()
        frame_bytes_max = node.options.frame_bytes_max
        # A client that is not authenticated may send small frames only.
        self._reader = FrameReader(frame_bytes_max if self.sasl is None else min(frame_bytes_max, TOKEN_BYTES_MAX))
        self.get_buffer = self._reader.space  # the transport calls the kernel, not a function of ours
        self._transport: asyncio.Transport
        self._files: FileSender | None = None
        self._calls: deque[AnyCall] = deque()  # started, and their responses not sent, in order
        self._running = 0  # how many of them have no response yet
        self._running_key = -1
        self._held_bytes = 0  # requests without a response, and responses not sent
        self._buffer_bytes = 0  # the receive buffer
        self._unsent_bytes = 0  # responses that the transport holds
        self._is_reading = True
        self._is_writable = True
        self._is_blocked = False  # whether the next request waits for those before it
        self._flush_due = False
        self._muting: asyncio.TimerHandle | None = None  # set while the client is throttled
        self._finishing = ""  # why no more requests are taken
        self.active_at = self._frame_since = node.clock.monotonic()
        self.peer = self.host = "?"
        self.user = ANONYMOUS
        self.takes_files = True
        self._is_closed = False
        self.closed: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self.host, self.peer = peer[0], f"{peer[0]}:{peer[1]}"
            if self.sasl is not None:
                self.sasl.host = self.host
        self.takes_files = transport.get_extra_info("sslcontext") is None
        # Without a buffer of its own, the transport tells at once whether the client takes what is sent. With TLS, a limit of 0
        # counts as reached by an empty buffer.
        self._transport.set_write_buffer_limits(high=0 if self.takes_files else 1, low=0)
        self._node.connections.add(self)
        self._probe.connections_opened += 1
        if len(self._node.connections) > self._node.connections_max:
            self.abort(f"there are {self._node.connections_max} connections already; max.connections allows no more")

    def connection_lost(self, exc: Exception | None) -> None:
        log.debug("%s: the connection is closed: %s", self.peer, exc or self._finishing or "by the client")
        self._finishing = self._finishing or "the client is gone"
        self._is_closed = True
        self._node.connections.discard(self)
        self._memory.forget(self._proceed)
        self._memory.give(self._held_bytes + self._buffer_bytes)
        self._held_bytes = self._buffer_bytes = 0
        for call in self._calls:
            if call.poll is not None:
                call.poll.cancel()
        self._calls.clear()
        self._reader.release()
        if self._muting is not None:
            self._muting.cancel()
        if self._files is not None:
            self._files.close()
        if not self.closed.done():
            self.closed.set_result(None)

    def buffer_updated(self, nbytes: int) -> None:
        self.active_at = now = self._now()
        if self._reader.received(nbytes):
            self._frame_since = now
        self._proceed()

    def eof_received(self) -> bool:
        self.finish("the client has closed its side")
        for call in self._calls:
            if isinstance(call, ForwardCall):
                call.half_closed()
        # Requests in flight can still be answered, except with TLS, which has no half-closed connections.
        return self.takes_files

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = True
        self.active_at = self._now()
        self._release(self._unsent_bytes)
        self._unsent_bytes = 0
        self._flush()
        self._proceed()

    def must_hurry(self) -> bool:
        """Returns whether a long poll should be answered now with what there is."""
        return self._is_blocked or bool(self._finishing)

    def mute(self, delay_s: float) -> None:
        """Starts no more requests for a while: the client is over its quota."""
        self._probe.count_throttle(delay_s)
        until = self._loop.time() + delay_s
        if self._muting is not None:
            until = max(until, self._muting.when())
            self._muting.cancel()
        self._muting = self._loop.call_at(until, self._unmute)

    def _unmute(self) -> None:
        self._muting = None
        self._proceed()

    def authenticated(self, user: str) -> None:
        """Records the authenticated user; from now on all requests are allowed."""
        self.user = user
        self.sasl = None
        self._reader.allow(self._options.frame_bytes_max)

    def finished(self, call: AnyCall) -> None:
        """Called by a request when it has its response."""
        now = self._now()
        if isinstance(call, PlainProduce):
            produce = call
            if produce.has_errors or produce.span is not None:
                self._probe.finished(produce, now)
            else:
                self._probe.produced(now - produce.began)
            size, freed, is_plain = 0, produce.cost, not produce.must_close
        else:
            self._probe.finished(call, now)
            size = call.size
            freed, is_plain = call.cost - size, not (call.must_close or call.has_files)
        if self._is_closed:
            return
        self._running -= 1
        self._held_bytes -= freed
        memory = self._memory
        memory.used -= freed
        if memory.waiting:
            memory.wake()
        if self._flush_due:
            return
        is_alone = len(self._calls) == 1 and self._is_reading and self._is_writable
        if is_alone and is_plain and not (self._finishing or self._transport.is_closing()):
            # No other response can go along with this one, and no request waits for it.
            self._calls.clear()
            buffers, reply_size = call.encode()
            self._write(buffers, reply_size, size, now)
        else:
            self._flush_due = True
            self._loop.call_soon(self._flush_soon)

    def finish(self, reason: str) -> None:
        """Starts no more requests, answers those in flight, then closes."""
        if not self._finishing:
            self._finishing = reason
            self._stop_reading()
            self._hurry()
            self._loop.call_soon(self._flush_soon)

    def abort(self, reason: str) -> None:
        """Closes the connection immediately."""
        log.warning("%s: closing the connection: %s", self.peer, reason)
        self._finishing = reason
        self._transport.abort()

    def sweep(self, now: float) -> None:
        """Applies timeouts; called periodically."""
        for call in self._calls:
            if not call.is_done:
                call.give_up(now)
        idle_s = now - self.active_at
        limit_s = self._options.idle_timeout_s
        if self._reader.pending and not self._running and now - self._frame_since > limit_s:
            self.abort(f"a request is not complete after {limit_s:g} s: {self._reader.pending} bytes of it came")
        elif idle_s > limit_s and not self._is_writable:
            self.abort(f"the client has not taken its replies for {limit_s:g} s")
        elif idle_s > limit_s and not self._calls:
            self.abort(f"idle for {limit_s:g} s")
        elif idle_s > BUFFER_IDLE_S and not self._reader.pending:
            self._reader.release()
            self._count_buffer(0)

    def _proceed(self) -> None:
        """Starts the received requests that may start now, and resumes reading if there is memory."""
        if self._finishing:
            return
        self._is_blocked = False
        reader = self._reader
        try:
            while reader.find():
                is_idle = not (self._calls or self._held_bytes) and self._muting is None
                if not (is_idle or self._may_start(reader.api_key)):
                    self._stop_reading()
                    return
                self._start(reader)
            if self._is_reading and reader.fits(self._buffer_bytes):
                return
            if self._may_read():
                if not self._is_reading:
                    self._is_reading = True
                    self._transport.resume_reading()
            else:
                self._stop_reading()
        except PenstockError as error:
            log.warning("%s: closing the connection: %s", self.peer, error)
            self.finish(str(error))

    def _may_start(self, api_key: int) -> bool:
        options = self._options
        if self._held_bytes >= options.connection_bytes_max or len(self._calls) >= options.connection_requests_max:
            return False
        if self._muting is not None:
            return False
        if self._running and not (api_key == self._running_key and api_key in CONCURRENT):
            self._is_blocked = True
            self._hurry()
            return False
        return self._held_bytes == 0 or self._has_memory()

    def _may_read(self) -> bool:
        """Returns whether there is memory for the buffer of the next frame; there always is for a small one. Once granted, the
        frame is read to its end."""
        wanted = self._reader.wanted
        if wanted > BUFFER_MAX and wanted > self._buffer_bytes and not self._has_memory():
            return False
        self._count_buffer(wanted)
        return True

    def _has_memory(self) -> bool:
        if self._memory.is_full:
            self._memory.wait(self._proceed)
            return False
        return True

    def _count_buffer(self, wanted: int) -> None:
        size = max(self._reader.capacity, wanted)
        if size != self._buffer_bytes:
            more, self._buffer_bytes = size - self._buffer_bytes, size
            self._memory.give(-more)

    def _start(self, reader: FrameReader) -> None:
        """Starts the request that the reader has found."""
        self._frame_since = self.active_at
        cost = reader.end - reader.begin + SIZE_BYTES
        call: AnyCall
        if reader.api_key == _PRODUCE and self.sasl is None:
            produce = call = PlainProduce()
            produce.node = self._node
            produce.peer = self
            produce.cost = cost
            produce.began = self.active_at
            is_plain = produce.parse(reader.buffer, reader.begin, reader.end)
            if is_plain and (self._node.access is None or produce.is_allowed()):
                reader.take(produce.has_views)
            else:
                call = self._call(reader, cost)
        elif reader.api_key == _FETCH and self.sasl is None:
            call = FetchCall()
            call.node = self._node
            call.peer = self
            call.cost = cost
            call.began = self.active_at
            if call.parse(reader.buffer, reader.begin, reader.end):
                reader.take(is_shared=False)
            else:
                call = self._call(reader, cost)
        else:
            call = self._call(reader, cost)
        self._calls.append(call)
        self._running += 1
        self._running_key = call.api_key
        self._held_bytes += cost
        self._memory.used += cost
        self._probe.bytes_in += cost
        if self._probe.tracing is not None:
            call.span = begin_span(self._probe.tracing, call)
        if isinstance(call, PlainProduce):
            produce = call
            produce.start()
        else:
            call.start()

    def _call(self, reader: FrameReader, cost: int) -> Call | FetchCall:
        """Takes a request of any shape. Raises ProtocolError if it is none that is served."""
        frame = reader.frame()
        reader.take(is_shared=reader.api_key == keys.PRODUCE)  # batches stay views of the frame; all else is copied out of it
        if self.sasl is not None and self._is_token(self.sasl):
            return TokenCall(token_request(frame), cost, self._node, self)
        try:
            request = decode_request(frame)
        except UnsupportedVersionError as error:
            request = unknown_version(error)
        make_call = CALLS.get(request.api_key)
        if make_call is None:
            raise ProtocolError(f"api key {request.api_key} version {request.api_version} is not served")
        forwarder = self._node.view.forwarder
        if forwarder is not None and needs_leader(self._node, request):
            return ForwardCall(request, cost, self._node, self, forwarder=forwarder, frame=bytes(frame))
        return make_call(request, cost, self._node, self)

    def _is_token(self, sasl: SaslExchange) -> bool:
        """Returns whether an unauthenticated client sent a bare SASL token. Raises SaslStateError for a request that needs
        authentication."""
        if sasl.takes_tokens:
            return True
        key = self._reader.api_key
        if key not in BEFORE_AUTHENTICATION:
            raise SaslStateError(f"a request with api key {key} came before authentication")
        return False

    def _flush_soon(self) -> None:
        self._flush_due = False
        self._flush()
        if not self._is_reading:
            self._proceed()

    def _flush(self) -> None:
        """Sends the completed responses at the front, as far as the client accepts them."""
        calls = self._calls
        while self._is_writable and calls and calls[0].is_done and not self._transport.is_closing():
            if calls[0].has_files:
                self._send_files(calls.popleft())
            else:
                self._write_ready()
        if self._finishing and not calls and self._is_writable and not self._transport.is_closing():
            log.debug("%s: closing the connection: %s", self.peer, self._finishing)
            self._transport.close()

    def _write_ready(self) -> None:
        """Passes the next responses to the transport in one write."""
        calls = self._calls
        buffers: list[Any] = []
        size = 0
        counted = 0
        while calls and calls[0].is_done and not calls[0].has_files and size < WRITE_BYTES_MAX:
            call = calls.popleft()
            if call.must_close:
                log.warning("%s: closing the connection: a request could not be answered", self.peer)
                self.finish("a request could not be answered")
                calls.clear()
                break
            reply, reply_size = call.encode()
            buffers += reply
            size += reply_size
            counted += call.size
        self._write(buffers, size, counted, self._now())

    def _write(self, buffers: list[Any], size: int, counted: int, now: float) -> None:
        """Passes responses of `size` bytes to the transport, of which `counted` bytes are held until they are sent."""
        self.active_at = now
        if not size:
            return
        self._probe.bytes_out += size
        if size <= JOIN_BYTES_MAX:
            self._transport.write(buffers[0] if len(buffers) == 1 else b"".join(buffers))
        else:
            self._transport.writelines(buffers)
        if not self._is_writable:
            self._unsent_bytes += size
            counted -= size
        if counted:
            self._release(counted)

    def _send_files(self, call: AnyCall) -> None:
        """Sends a response that has pieces of files; nothing else is sent until it is complete."""
        self._probe.bytes_out += call.size
        self._note_activity()
        try:
            if self._files is None:
                self._files = self._new_sender()
            self._is_writable = self._files.send(call.encode()[0])
        except OSError as error:
            self.abort(f"a reply cannot be sent: {error}")
            return
        if self._is_writable:
            self._release(call.size)
        else:
            self._unsent_bytes += call.size

    def _new_sender(self) -> FileSender:
        own, peer = (self._transport.get_extra_info(name) for name in ("sockname", "peername"))
        is_near = bool(own and peer) and own[0] == peer[0]
        fd = self._transport.get_extra_info("socket").fileno()
        return FileSender(fd, self._note_activity, self._files_sent, copies=is_near)

    def _files_sent(self, error: OSError | None) -> None:
        """Called when a response that could not be sent at once is sent, or has failed."""
        if error is None:
            self.resume_writing()
        else:
            self.abort(f"a reply cannot be sent: {error}")

    def _note_activity(self) -> None:
        self.active_at = self._now()

    def _release(self, size: int) -> None:
        self._held_bytes -= size
        self._memory.give(size)

    def _stop_reading(self) -> None:
        if self._is_reading and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    def _hurry(self) -> None:
        """Ends long polls that other requests wait for."""
        for call in self._calls:
            if call.poll is not None and not call.poll.done():
                call.poll.set_result(None)


class Connection(RequestPipeline, asyncio.BufferedProtocol):
    """The protocol of one connection. A class of its own, because event loops ask for the class of a protocol, and a compiled
    class has no such base."""
