"""The progress of an export: an attribute of its directory, stored atomically with each table. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

PROGRESS = "queue_static_export_progress"
DESTINATION = "queue_static_export_destination"


class TabletProgress(NamedTuple):
    """Rows before `next_row` are exported, or were deleted before; the latest of them is from `max_timestamp`."""

    next_row: int
    max_timestamp_ms: int = 0
    lost_rows: int = 0


class ExportProgress(NamedTuple):
    """The end of the last exported period, and the progress of each partition."""

    queue_id: str
    exported_s: int = 0
    stored_ms: int = 0
    tablets: Mapping[int, TabletProgress] = {}

    def next_row(self, number: int) -> int:
        """The first row of a partition that is not exported."""
        known = self.tablets.get(number)
        return 0 if known is None else known.next_row

    def shown(self) -> dict[str, Any]:
        """As the attribute gives it, in the terms of the original's clients."""
        return {
            "queue_object_id": self.queue_id,
            "last_exported_fragment_unix_ts": self.exported_s,
            "last_successful_export_unix_ts": self.stored_ms // 1000,
            "tablets": {
                str(number): {
                    "row_count": tablet.next_row,
                    "max_timestamp": tablet.max_timestamp_ms,
                    "lost_row_count": tablet.lost_rows,
                }
                for number, tablet in sorted(self.tablets.items())
            },
        }

    def pack(self) -> bytes:
        """The stored form: JSON, as of every attribute."""
        return json.dumps({**self.shown(), "stored_ms": self.stored_ms}).encode()

    @classmethod
    def unpack(cls, raw: bytes) -> ExportProgress:
        """The progress whose stored form is `raw`."""
        fields = json.loads(raw)
        tablets = {
            int(number): TabletProgress(tablet["row_count"], tablet["max_timestamp"], tablet["lost_row_count"])
            for number, tablet in fields["tablets"].items()
        }
        return cls(fields["queue_object_id"], fields["last_exported_fragment_unix_ts"], fields["stored_ms"], tablets)


def progress_in(attributes: Mapping[str, bytes], queue_id: str) -> ExportProgress:
    """The progress that a directory keeps for a queue; none yet if it is of another queue."""
    raw = attributes.get(PROGRESS)
    known = None if raw is None else _unpacked(raw)
    return known if known is not None and known.queue_id == queue_id else ExportProgress(queue_id)


@lru_cache(maxsize=1000)
def _unpacked(raw: bytes) -> ExportProgress:
    """Asked for again and again, for each partition of a queue and in each pass."""
    return ExportProgress.unpack(raw)
