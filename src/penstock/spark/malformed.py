"""Values that could not be decoded, and the schema in which they are passed on."""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa


class MalformedValue(NamedTuple):
    """A value that could not be decoded: its row in the batch, and why."""

    row: int
    reason: str


def describe_first(dead: pa.RecordBatch) -> str:
    """The first of some dead letters, for people."""
    first = dead.slice(0, 1).to_pylist()[0]
    return f"offset {first['offset']} of {first['topic']}-{first['partition']}: {first['reason']}"


REASON_CHARACTERS: Final = 500

DEAD_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("reason", pa.string()),
    ]
)
