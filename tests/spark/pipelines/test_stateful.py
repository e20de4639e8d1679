"""Transforms with state: windows, joins of topics and state of one's own, each result once, and no state lost without a word."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from penstock.core.errors import UnavailableError
from penstock.spark.pipelines.errors import LostStateError
from penstock.spark.tables.table import table_of
from penstock.spark.tables.table_target import TableTarget
from tests.spark.pipelines.runs import CLICKS, Runs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def click(second: int, page: str) -> dict[str, Any]:
    """A click at a second of an hour."""
    return {"id": second, "page": page, "at": f"2026-11-01T00:{second // 60:02}:{second % 60:02}Z"}


def windows(topic: str, target: str) -> str:
    """Clicks a page and minute."""
    sql = "SELECT date_format(window.start, 'HH:mm') AS minute, page, count(*) AS n"
    return "\n".join(
        [
            "kind: transform",
            f"source: {CLICKS.replace('TOPIC', topic)}",
            "transform:",
            f"  sql: {sql} FROM {topic} GROUP BY window(at, '1 minute'), page",
            "  watermark: {column: at, delay: 10 seconds}",
            f"target: {target}",
        ]
    )


def counts(runs: Runs, topic: str) -> list[tuple[str, str, int]]:
    """What is in the topic of counts."""
    return sorted((one["minute"], one["page"], one["n"]) for one in runs.values(topic))


def test_windows_are_written_once_over_restarts_and_bad_rows_put_aside(runs: Runs) -> None:
    topic = runs.topic("s1")
    runs.produce(topic, [click(1, "a"), click(2, "a"), click(30, "b"), b"{bad"])
    spec = runs.declare("minutes", windows(topic, "{topic: s1-out}"))
    assert runs.run(spec)["dead_letters"] == 1
    assert counts(runs, "s1-out") == []
    runs.produce(topic, [click(59, "a"), click(100, "a"), click(200, "b")], partition=1)
    state = runs.run(spec)
    assert state["dead_letters"] == 0
    assert counts(runs, "s1-out") == [("00:00", "a", 3), ("00:00", "b", 1), ("00:01", "a", 1)]
    runs.run(spec)
    assert len(counts(runs, "s1-out")) == 3
    assert [row["value"] for row in runs.rows("minutes.dead")] == [b"{bad"]
    runs.produce(topic, [click(3, "a"), click(201, "b")])
    assert runs.run(spec)["late_rows"] == 1
    assert "1 dropped as late" in runs.said
    assert len(counts(runs, "s1-out")) == 3


def test_a_lost_checkpoint_is_refused_and_gone_on_without_when_told(runs: Runs) -> None:
    topic = runs.topic("s2", 1)
    runs.produce(topic, [click(1, "a"), click(90, "a")])
    spec = runs.declare("lost", windows(topic, "{topic: s2-out}"))
    runs.run(spec)
    assert counts(runs, "s2-out") == [("00:00", "a", 1)]
    shutil.rmtree(spec.checkpoint)
    runs.produce(topic, [click(91, "a"), click(200, "a")])
    with pytest.raises(LostStateError, match=r"the checkpoint of pipeline 'lost' at .* is gone, .* --reset-state"):
        runs.run(spec)
    assert counts(runs, "s2-out") == [("00:00", "a", 1)]
    runs.run(spec, resets_state=True)
    # The click at 90 s was in the state that is gone; nothing that was written is written again.
    assert counts(runs, "s2-out") == [("00:00", "a", 1), ("00:01", "a", 1)]


@pytest.mark.parametrize("form", ["delta", pytest.param("parquet", marks=pytest.mark.soak)])
def test_windows_go_to_a_table_each_once(runs: Runs, form: str) -> None:
    topic = runs.topic(f"s3-{form}")
    runs.produce(topic, [click(1, "a"), click(2, "a"), b"{bad", click(90, "b")])
    target = f"{{table: {{format: {form}, location: lake}}}}"
    spec = runs.declare(f"lake-{form}", windows(f"`{topic}`", target).replace(f"[`{topic}`]", f"[{topic}]"))
    assert runs.run(spec)["dead_letters"] == 1
    runs.produce(topic, [click(200, "b")])
    runs.run(spec)
    runs.run(spec)
    assert spec.target.table is not None
    table = table_of(spec, spec.target.table)
    table.refresh()
    reader = table.reader()
    rows = [row for file in table.data_files() for batch in reader.read(file) for row in batch.to_pylist()]
    assert sorted((row["minute"], row["page"], row["n"]) for row in rows) == [("00:00", "a", 2), ("00:01", "b", 1)]


def test_dead_letters_of_a_first_batch_that_is_repeated_are_not(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = runs.topic("s5", 1)
    runs.produce(topic, [click(1, "a"), b"{bad", click(90, "b")])
    body = windows(topic, "{table: {format: parquet, location: lake}}") + "\nrestart: {attempts: 2, backoff: 100ms}\n"
    commit, failures = TableTarget.commit, [UnavailableError("the store is away")]

    def fail_once(target: TableTarget, *files: Any, **how: Any) -> None:
        if failures:
            raise failures.pop()
        commit(target, *files, **how)

    monkeypatch.setattr(TableTarget, "commit", fail_once)
    runs.run(runs.declare("repeated", body))
    assert not failures
    assert [row["value"] for row in runs.rows("repeated.dead")] == [b"{bad"]


def test_two_topics_are_joined(runs: Runs) -> None:
    runs.topic("orders", 1)
    runs.topic("paid", 1)
    runs.produce("orders", [{"id": 1, "at": "2026-11-01T00:00:00Z"}, {"id": 2, "at": "2026-11-01T00:00:01Z"}])
    runs.produce("paid", [{"ref": 2, "sum": 20, "at": "2026-11-01T00:00:05Z"}])
    values = "orders: {format: json, schema: 'id BIGINT, at TIMESTAMP'}"
    values += ", paid: {format: json, schema: 'ref BIGINT, sum INT, at TIMESTAMP'}"
    sql = "SELECT o.id, p.sum FROM orders o JOIN paid p ON o.id = p.ref AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR"
    body = f"kind: transform\nsource: {{topics: [orders, paid], values: {{{values}}}}}\n"
    body += f"transform:\n  sql: {sql}\n  watermark: {{orders: {{column: at, delay: 1m}}, paid: {{column: at, delay: 1m}}}}\n"
    spec = runs.declare("settled", body + "target: {topic: settled}\n")
    runs.run(spec)
    runs.produce("paid", [{"ref": 1, "sum": 10, "at": "2026-11-01T00:30:00Z"}])
    runs.run(spec)
    assert sorted((one["id"], one["sum"]) for one in runs.values("settled")) == [(1, 10), (2, 20)]


COUNTER = """
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql import Row

class Running(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "n BIGINT")

    def handleInputRows(self, key, rows, timers):
        (n,) = self.total.get() or (0,)
        for row in rows:
            n += 1
        self.total.update((n,))
        yield Row(page=key[0], n=n)

    def close(self):
        pass

def totals(s4):
    return s4.groupBy("page").transformWithState(Running(), "page STRING, n BIGINT", "update", "none")
"""


def test_state_of_ones_own_lives_on(runs: Runs) -> None:
    topic = runs.topic("s4", 1)
    (runs.directory / "counter.py").write_text(COUNTER)
    body = f"kind: transform\nsource: {CLICKS.replace('TOPIC', topic)}\n"
    body += "transform: {python: counter.py:totals, output_mode: update}\ntarget: {topic: s4-out, partitions: 1}\n"
    spec = runs.declare("totals", body)
    runs.produce(topic, [click(1, "a"), click(2, "a")])
    runs.run(spec)
    runs.produce(topic, [click(3, "a")])
    runs.run(spec)
    assert runs.values("s4-out") == [{"page": "a", "n": 2}, {"page": "a", "n": 3}]
