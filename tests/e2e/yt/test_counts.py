"""Rows are counted as rows: the markers of transactions, which take row indexes too, count nowhere."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.yt.queue_objects import Make, Objects
from tests.e2e.yt.yt_clusters import YtClusters, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def place(objects: Objects, tablet: int = 0) -> dict[str, Any]:
    """Where the consumer stands."""
    shown = objects.client.get(f"{objects.consumer}/@queue_consumer_partitions")
    return dict(shown[f"pythia:{objects.queue}"][tablet])


def insert_in_both(objects: Objects, count: int) -> None:
    """Insertions of two tablets each, which are transactions."""
    for number in range(count):
        rows = [{"data": f"row {number}", "$tablet_index": tablet} for tablet in (0, 1)]
        objects.client.insert_rows(objects.queue, rows)


def test_retained_rows_are_rows(make: Make, pythia: YtClusters) -> None:
    objects = make(tablets=2)
    objects.register(vital=True)
    pythia.yt("--proxy", "pythia", "set", f"{objects.queue}/@auto_trim_config", "{enable=true;retained_rows=10}")
    insert_in_both(objects, 30)
    assert pythia.value("--proxy", "pythia", "get", f"{objects.queue}/@row_count") == 60
    partitions = objects.client.get(f"{objects.queue}/@queue_partitions")
    assert [(one["upper_row_index"], one["available_row_count"]) for one in partitions] == [(60, 30), (60, 30)]
    for tablet in (0, 1):
        objects.advance(None, 60, tablet)
    wait_until(lambda: objects.client.get(f"{objects.queue}/@row_count") == 20)
    for tablet in (0, 1):
        assert objects.data(tablet=tablet) == [f"row {number}" for number in range(20, 30)]
        assert objects.lower(tablet) == 40


def test_a_consumer_is_as_far_behind_as_it_has_rows_to_read(make: Make) -> None:
    objects = make(tablets=2)
    objects.register(vital=True)
    insert_in_both(objects, 5)
    (first, *_, last) = objects.pull()
    assert (first["$row_index"], last["$row_index"]) == (0, 8)
    assert (place(objects)["unread_row_count"], place(objects)["disposition"]) == (5, "pending_consumption")
    weight = place(objects)["unread_data_weight"]
    objects.advance(0, 1)  # where the first marker is
    assert place(objects)["unread_row_count"] == 4
    assert place(objects)["unread_data_weight"] == weight * 4 // 5
    assert place(objects)["processing_lag"] > 0
    objects.advance(1, 9)
    shown = place(objects)
    assert (shown["unread_row_count"], shown["disposition"], shown["processing_lag"]) == (0, "up_to_date", 0)
    assert shown["unread_data_weight"] == 0


def test_the_first_write_is_in_the_rates(make: Make) -> None:
    objects = make()
    objects.insert("a", "b", "c")
    status = f"{objects.queue}/@queue_status"
    wait_until(lambda: objects.client.get(f"{status}/write_row_count_rate/1d") > 0)
    assert objects.client.get(f"{status}/write_data_weight_rate/1d") > 0


def test_no_more_weight_comes_than_is_asked_for(make: Make, pythia: YtClusters) -> None:
    objects = make()
    objects.insert(*("x" * 1000 for _ in range(1000)))  # one batch
    weights = [row["$cumulative_data_weight"] for row in objects.pull(max_data_weight=10_000)]
    assert 9000 < weights[-1] <= 10_000
    assert len(objects.pull(max_data_weight=1)) == 1
    assert len(objects.pull(offset=500, max_data_weight=10_000)) == len(weights)
    objects.register(vital=False)
    options = ("--partition-index", "0", "--offset", "0", "--max-data-weight", "10000")
    rows = pythia.rows("--proxy", "pythia", "pull-consumer", objects.consumer, objects.queue, *options)
    assert [row["$cumulative_data_weight"] for row in rows] == weights


def test_rates_of_reading_count_rows(make: Make) -> None:
    objects = make(tablets=2)
    objects.register(vital=True)
    insert_in_both(objects, 20)
    objects.advance(None, 0)

    def rates() -> tuple[float, float]:
        rows = objects.client.get(f"{objects.consumer}/@queue_consumer_status/queues")[f"pythia:{objects.queue}"]
        return rows["read_row_count_rate"]["1d"], rows["read_data_weight_rate"]["1d"]

    wait_until(lambda: place(objects)["consume_idle_time"] > 2500)  # it was seen there
    objects.advance(0, 40)
    wait_until(lambda: min(rates()) > 0)
    weight_of_row = objects.pull()[0]["$cumulative_data_weight"]
    rows, weight = rates()
    assert weight / rows == pytest.approx(weight_of_row, rel=0.1)  # 20 rows, not 40 offsets
