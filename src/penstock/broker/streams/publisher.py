"""Publishing to the logs of subjects: messages published to a subject within one turn of the event loop become one batch.

So many concurrent publishers cost little more than one, and a single publisher does not wait: a turn ends as soon as the loop has
nothing more to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.broker.streams.records import RECORD_OVERHEAD, Content, batch_of
from penstock.broker.streams.sequencer import MessagePlace, PendingWrite, Sequencer, Subject

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.route import Route

GATHERED_MESSAGES_MAX: Final = 64  # to read one of them, those before it are gone over
GATHERED_BYTES_MAX: Final = 64 << 10
RECORD_BYTES: Final = 40  # of a record, besides what is in it


class _OpenBatch:
    """A batch that collects messages until it is sent."""

    def __init__(self, route: Route, pending: PendingWrite) -> None:
        self.route = route
        self.pending = pending
        self.contents: list[Content] = []
        self.size = 0
        self.size_max = min(GATHERED_BYTES_MAX, route.partition.config.batch_bytes_max - RECORD_OVERHEAD)
        self.sent = False

    def add(self, contents: Sequence[Content], size: int, publisher: asyncio.Future[MessagePlace]) -> None:
        self.pending.tell(publisher, len(self.contents))
        self.contents += contents
        self.size += size


class Publisher:
    """Writes messages to the logs of their subjects."""

    def __init__(self, broker: Broker, sequencer: Sequencer) -> None:
        self._broker = broker
        self._sequencer = sequencer
        self._open_batches: dict[int, _OpenBatch] = {}  # by number of the subject

    def append(self, subject: Subject, route: Route, contents: Sequence[Content], size: int) -> asyncio.Future[MessagePlace]:
        """Write messages of one subject, one after another, that take about `size` bytes of a batch; where the first of them is,
        once all are durable and have sequences."""
        loop = asyncio.get_running_loop()
        publisher: asyncio.Future[MessagePlace] = loop.create_future()
        open_batch = self._open_batches.get(subject.number)
        if open_batch is not None and (open_batch.route is not route or open_batch.size + size > open_batch.size_max):
            self._send(subject, open_batch)
            open_batch = None
        if open_batch is None:
            open_batch = self._open_batches[subject.number] = _OpenBatch(route, PendingWrite(self._sequencer, subject))
            loop.call_soon(self._send, subject, open_batch)
        open_batch.add(contents, size, publisher)
        if len(open_batch.contents) >= GATHERED_MESSAGES_MAX:
            self._send(subject, open_batch)
        return publisher

    def _send(self, subject: Subject, open_batch: _OpenBatch) -> None:
        if open_batch.sent:
            return
        open_batch.sent = True
        del self._open_batches[subject.number]
        try:
            batch = batch_of(open_batch.contents, int(self._broker.clock.wall() * 1000))
            self._broker.begin_produce(open_batch.route, batch, open_batch.pending)
        except Exception as error:  # noqa: BLE001 - the publishers must get every error
            open_batch.pending.set_exception(error)
