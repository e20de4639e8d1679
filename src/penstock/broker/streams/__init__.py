"""Streams on the broker's topics: one sequence over all subjects, large payloads, durable consumers (seed 004)."""

from penstock.broker.streams.engine import DeletedMessage, PartlyPublishedError, PublishResult, StreamEngine
from penstock.broker.streams.errors import (
    InvalidHeadersError,
    InvalidPositionError,
    InvalidSubjectError,
    PayloadCorruptError,
    UnknownMessageError,
)
from penstock.broker.streams.followers import Followers
from penstock.broker.streams.positions import ConsumerPosition, DeliveryRule
from penstock.broker.streams.probe import EngineProbe
from penstock.broker.streams.reading import ReadMessages, StreamMessage
from penstock.broker.streams.records import (
    CHECKSUM,
    HEADER_OVERHEAD,
    HEADERS_BYTES_MAX,
    OBJECT_NAME,
    SIZE,
    Content,
    Payload,
    fitting_headers,
)
from penstock.broker.streams.streams import StreamOptions, Streams
from penstock.broker.streams.subject_patterns import consumes, is_pattern, matches

__all__ = [
    "CHECKSUM",
    "HEADERS_BYTES_MAX",
    "HEADER_OVERHEAD",
    "OBJECT_NAME",
    "SIZE",
    "ConsumerPosition",
    "Content",
    "DeletedMessage",
    "DeliveryRule",
    "EngineProbe",
    "Followers",
    "InvalidHeadersError",
    "InvalidPositionError",
    "InvalidSubjectError",
    "PartlyPublishedError",
    "Payload",
    "PayloadCorruptError",
    "PublishResult",
    "ReadMessages",
    "StreamEngine",
    "StreamMessage",
    "StreamOptions",
    "Streams",
    "UnknownMessageError",
    "consumes",
    "fitting_headers",
    "is_pattern",
    "matches",
]
