"""How far the timestamps of messages may be from the clock of the broker, as Kafka's topics limit them."""

from __future__ import annotations

from typing import NamedTuple

from penstock.broker.errors import InvalidTimestampError
from penstock.queue import TimeRange

NO_TIMESTAMP = -1
UNLIMITED_MS = (1 << 63) - 1


class TimestampLimits(NamedTuple):
    """How much older, and how much later than now a message may claim to be."""

    before_ms: int
    after_ms: int

    def check(self, times: TimeRange, now_ms: int) -> None:
        """InvalidTimestampError if the earliest or the latest timestamp of a batch is out of bounds."""
        first, latest = times
        if latest != NO_TIMESTAMP and latest - now_ms > self.after_ms:
            raise InvalidTimestampError(
                f"timestamp {latest} is {latest - now_ms} ms ahead of the broker's clock; message.timestamp.after.max.ms allows "
                f"{self.after_ms}"
            )
        if first != NO_TIMESTAMP and now_ms - first > self.before_ms:
            raise InvalidTimestampError(
                f"timestamp {first} is {now_ms - first} ms old; message.timestamp.before.max.ms allows {self.before_ms}"
            )
