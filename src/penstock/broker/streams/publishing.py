"""Publishing to the logs of subjects: what is published to a subject within one turn of the loop goes there as one batch.

So many publishers at once cost little more than one. Whoever publishes alone waits for no one: a turn ends as soon as nothing
more is at hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.broker.streams.records import RECORD_OVERHEAD, Content, batch_of
from penstock.broker.streams.sequencer import PendingWrite, Sequenced, Sequencer, Subject

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.intake import Route

GATHERED_MESSAGES_MAX: Final = 64  # to read one of them, those before it are gone over
GATHERED_BYTES_MAX: Final = 64 << 10
RECORD_BYTES: Final = 40  # of a record, besides what is in it


class _Gathering:
    """A batch that takes more messages until it is sent."""

    def __init__(self, route: Route, pending: PendingWrite) -> None:
        self.route = route
        self.pending = pending
        self.contents: list[Content] = []
        self.size = 0
        self.size_max = min(GATHERED_BYTES_MAX, route.partition.config.batch_bytes_max - RECORD_OVERHEAD)
        self.sent = False

    def add(self, contents: Sequence[Content], size: int, publisher: asyncio.Future[Sequenced]) -> None:
        self.pending.tell(publisher, len(self.contents))
        self.contents += contents
        self.size += size


class Publishing:
    """Writes messages to the logs of their subjects."""

    def __init__(self, broker: Broker, sequencer: Sequencer) -> None:
        self._broker = broker
        self._sequencer = sequencer
        self._open: dict[int, _Gathering] = {}  # by number of the subject

    def append(self, subject: Subject, route: Route, contents: Sequence[Content], size: int) -> asyncio.Future[Sequenced]:
        """Write messages of one subject, one after another, that take about `size` bytes of a batch; where the first of them is,
        once all are durable and have sequences."""
        loop = asyncio.get_running_loop()
        publisher: asyncio.Future[Sequenced] = loop.create_future()
        gathering = self._open.get(subject.number)
        if gathering is not None and (gathering.route is not route or gathering.size + size > gathering.size_max):
            self._send(subject, gathering)
            gathering = None
        if gathering is None:
            gathering = self._open[subject.number] = _Gathering(route, PendingWrite(self._sequencer, subject))
            loop.call_soon(self._send, subject, gathering)
        gathering.add(contents, size, publisher)
        if len(gathering.contents) >= GATHERED_MESSAGES_MAX:
            self._send(subject, gathering)
        return publisher

    def _send(self, subject: Subject, gathering: _Gathering) -> None:
        if gathering.sent:
            return
        gathering.sent = True
        del self._open[subject.number]
        try:
            batch = batch_of(gathering.contents, int(self._broker.clock.wall() * 1000))
            self._broker.begin_produce(gathering.route, batch, gathering.pending)
        except Exception as error:  # noqa: BLE001 - nobody else would tell the publishers
            gathering.pending.set_exception(error)
