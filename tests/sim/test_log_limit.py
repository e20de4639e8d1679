"""The logs of many tablets stay short, so that another node takes them over soon."""

from __future__ import annotations

import pytest

from penstock.broker import log_limit
from penstock.broker.log_limit import LogLimit
from penstock.testing.batches import make_batch
from penstock.testing.sim_loop import run_simulation
from tests.sim_broker import SimBroker


async def _written(writes: tuple[int, ...]) -> SimBroker:
    """A broker with a topic of one partition for each of these numbers of messages."""
    host = await SimBroker().start()
    for topic, count in enumerate(writes):
        await host.do(host.broker.create_topic(f"t{topic}", 1))
        for _ in range(count):
            await host.do(host.partition(f"t{topic}", 0).write(make_batch([b"v"])))
    return host


def _logs(host: SimBroker) -> list[int]:
    """The entries of each topic's log."""
    logs = {tablet.id: tablet.log_entries for tablet in host.broker.tablets.running()}
    return [logs[topic.tablets[0]] for topic in sorted(host.broker.catalog.topics(), key=lambda topic: topic.name)]


def test_the_longest_logs_are_shortened_only_as_far_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_limit, "ENTRIES_MAX", 400)
    writes = (10, 60, 70, 80, 200, 300)

    async def main() -> None:
        host = await _written(writes)
        limit = LogLimit(host.broker.running_tablets)
        await host.do(limit.once())
        shortened = _logs(host)
        assert shortened[5] < 10
        assert all(entries >= count for entries, count in zip(shortened[:4], writes[:4], strict=True)), shortened
        assert sum(tablet.log_entries for tablet in host.broker.running_tablets()) <= 400
        await host.do(limit.once())
        assert _logs(host) == shortened
        await host.restart()
        assert [host.partition(f"t{topic}", 0).end_offset for topic in range(len(writes))] == list(writes)
        await host.stop()

    run_simulation(main())


def test_a_run_takes_few_snapshots_and_none_of_a_short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_limit, "ENTRIES_MAX", 10)
    monkeypatch.setattr(log_limit, "SNAPSHOTS_AT_ONCE", 2)

    async def main() -> None:
        host = await _written((20, 60, 60, 60))
        limit = LogLimit(host.broker.tablets.running)
        await host.do(limit.once())
        assert sum(entries >= 60 for entries in _logs(host)) == 1
        await host.do(limit.once())
        assert not any(entries >= 60 for entries in _logs(host))
        assert _logs(host)[0] >= 20
        await host.stop()

    run_simulation(main())
