"""A limit for the logs of tablets. A node that takes tablets over replays what is in their logs since their last snapshots before
they serve, which takes long for many tablets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from penstock.core.errors import PenstockError
from penstock.core.periodic import repeat
from penstock.tablet import KvTablet

log = logging.getLogger(__name__)

INTERVAL_S = 1.0
ENTRIES_MAX = 20_000  # which take about a second to replay
SHORTENED_MIN = 50  # a shorter log is not worth a snapshot
SNAPSHOTS_AT_ONCE = 2  # of a run: each takes several syncs, for which writers of other tablets wait


class LogLimit:
    """Limits the entries that would be replayed of all tablets of a node. Beyond that, those with the longest logs take
    snapshots. `tablets` returns those that run."""

    def __init__(self, tablets: Callable[[], Sequence[KvTablet]]) -> None:
        self._tablets = tablets

    async def run(self) -> None:
        """Run periodically until cancelled."""
        await repeat("the limit of logs", INTERVAL_S, self.once)

    async def once(self) -> None:
        """Check all tablets once; one that fails is retried on the next run."""
        logs = [(tablet.log_entries, tablet) for tablet in self._tablets()]
        total = sum(entries for entries, _ in logs)
        if total <= ENTRIES_MAX:
            return
        for entries, tablet in sorted(logs, key=lambda each: each[0], reverse=True)[:SNAPSHOTS_AT_ONCE]:
            if total <= ENTRIES_MAX or entries < SHORTENED_MIN:
                break
            await _shorten(tablet)
            total -= entries


async def _shorten(tablet: KvTablet) -> None:
    try:
        await tablet.take_snapshot()
    except PenstockError as error:
        log.info("the log of tablet %d stays long for now: %s", tablet.id, error)
