"""Writing messages to a topic, as commands do it."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.cli.failure import usage
from penstock.cli.kafka_client import CommandClient
from penstock.client.messages import MessageDraft
from penstock.client.writer import TopicWriter
from penstock.core.errors import InvalidRequestError
from penstock.kafka.client import finish


class Producer:
    """Writes to one topic. What was sent and not acknowledged is sent again under the same sequence number."""

    def __init__(self, client: CommandClient, name: str) -> None:
        client.topic(name, create=True)  # if there is none, its error names the command that creates one
        self._writer = finish(TopicWriter.open(client.coroutines, name))
        self.written = self._writer.written
        "Acknowledged messages by partition."

    @property
    def bytes(self) -> int:
        """How many bytes of keys and values were written."""
        return self._writer.bytes

    def send(self, drafts: Iterable[MessageDraft]) -> None:
        """Write some messages; they are stored when this returns."""
        try:
            finish(self._writer.send(drafts))
        except InvalidRequestError as error:
            raise usage(str(error)) from error
