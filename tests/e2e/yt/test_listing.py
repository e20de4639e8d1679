"""Listing 1 of the seed, with the real `yt` command and two clusters: the same commands, the same answers.

One word differs: today's `yt` takes `--vital` without a value; that of the seed's time took `true`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.yt.yt_clusters import YtClusters, wait_until, yt_clusters

QUEUE_ATTRIBUTES = (
    '{dynamic=true;schema=[{name=data;type=string};{name="$timestamp";type=uint64};{name="$cumulative_data_weight";type=int64}]}'
)
CONSUMER_ATTRIBUTES = (
    "{dynamic=true;treat_as_queue_consumer=true;schema=[{name=queue_cluster;type=string;sort_order=ascending;required=true};"
    "{name=queue_path;type=string;sort_order=ascending;required=true};"
    "{name=partition_index;type=uint64;sort_order=ascending;required=true};{name=offset;type=uint64;required=true}]}"
)
QUEUE, CONSUMER = "//tmp/test_queue", "//tmp/test_consumer"
REMOTE_QUEUE = f"<cluster=pythia>{QUEUE}"
NO_RATE = {"1m_raw": 0.0, "1h": 0.0, "current": 0.0, "1d": 0.0, "1m": 0.0}
REGISTRATIONS = [{"queue": f"pythia:{QUEUE}", "consumer": f"hume:{CONSUMER}", "vital": True}]
ROWS = b"{data=foo}; {data=bar}; {data=foobar}; {data=megafoo}; {data=megabar}\n"
REGISTERED = """[
  {
    "queue_path" = <
      "cluster" = "pythia";
    > "//tmp/test_queue";
    "consumer_path" = <
      "cluster" = "hume";
    > "//tmp/test_consumer";
    "vital" = %true;
    "partitions" = #;
  };
]"""


def data_of(rows: list[dict[str, Any]]) -> list[tuple[int, str, int]]:
    return [(row["$row_index"], row["data"], row["$cumulative_data_weight"]) for row in rows]


def check_unmounted(clusters: YtClusters) -> None:
    status = clusters.value("--proxy", "pythia", "get", f"{QUEUE}/@queue_status")
    assert status == {
        "write_data_weight_rate": NO_RATE,
        "write_row_count_rate": NO_RATE,
        "registrations": REGISTRATIONS,
        "family": "ordered_dynamic_table",
        "has_cumulative_data_weight_column": True,
        "has_timestamp_column": True,
        "partition_count": 1,
    }
    [partition] = clusters.value("--proxy", "pythia", "get", f"{QUEUE}/@queue_partitions")
    assert partition["error"]["code"] == 1
    assert partition["error"]["message"].startswith("Tablet ")
    assert partition["error"]["message"].endswith(" is not mounted")
    assert partition["error"]["attributes"]["state"] == "unmounted"
    status = clusters.value("--proxy", "hume", "get", f"{CONSUMER}/@queue_consumer_status")
    error = status["queues"][f"pythia:{QUEUE}"]["error"]
    assert error["code"] == 1702
    assert error["message"].endswith('while it is in "unmounted" state')
    assert error["attributes"]["is_tablet_unmounted"]
    assert status["registrations"] == REGISTRATIONS


def check_mounted(clusters: YtClusters) -> None:
    [partition] = clusters.value("--proxy", "pythia", "get", f"{QUEUE}/@queue_partitions")
    assert partition.pop("meta").keys() == {"cell_id", "host"}
    assert partition.pop("commit_idle_time") > 1_600_000_000_000
    assert partition == {
        "lower_row_index": 0,
        "upper_row_index": 0,
        "available_row_count": 0,
        "cumulative_data_weight": None,
        "available_data_weight": None,
        "trimmed_data_weight": None,
        "last_row_commit_time": "1970-01-01T00:00:00.000000Z",
        "write_row_count_rate": NO_RATE,
        "write_data_weight_rate": NO_RATE,
    }
    status = clusters.value("--proxy", "hume", "get", f"{CONSUMER}/@queue_consumer_status")
    rates = {"read_data_weight_rate": NO_RATE, "read_row_count_rate": NO_RATE, "partition_count": 1}
    assert status == {"queues": {f"pythia:{QUEUE}": rates}, "registrations": REGISTRATIONS}


@pytest.mark.slow
def test_listing_1_of_the_seed(tmp_path: Path) -> None:
    with yt_clusters(tmp_path) as clusters:
        yt = clusters.yt
        assert yt("--proxy", "pythia", "create", "table", QUEUE, "--attributes", QUEUE_ATTRIBUTES).count("-") == 3
        assert yt("--proxy", "hume", "create", "table", CONSUMER, "--attributes", CONSUMER_ATTRIBUTES).count("-") == 3
        yt("--proxy", "pythia", "register-queue-consumer", QUEUE, f"<cluster=hume>{CONSUMER}", "--vital")
        assert yt("--proxy", "pythia", "list-queue-consumer-registrations", "--queue-path", QUEUE) == REGISTERED
        check_unmounted(clusters)
        yt("--proxy", "pythia", "mount-table", QUEUE)
        yt("--proxy", "hume", "mount-table", CONSUMER)
        check_mounted(clusters)
        yt("--proxy", "pythia", "set", f"{QUEUE}/@auto_trim_config", "{enable=true}")
        for _ in range(20):
            yt("insert-rows", "--proxy", "pythia", QUEUE, "--format", "yson", stdin=ROWS)
        rates = clusters.value("--proxy", "pythia", "get", f"{QUEUE}/@queue_status/write_row_count_rate")
        # The example shows all of them alike; here each tells of the time that was watched, if that is less than its window.
        assert rates["1m_raw"] == rates["1m"] > 0
        assert min(rates["1h"], rates["1d"]) > 0

        pull = ("--proxy", "hume", "pull-consumer", CONSUMER, REMOTE_QUEUE, "--partition-index", "0", "--offset", "0")
        rows = clusters.rows(*pull, "--max-row-count", "10")
        first = [(0, "foo", 20), (1, "bar", 40), (2, "foobar", 63), (3, "megafoo", 87), (4, "megabar", 111)]
        assert data_of(rows)[:5] == first
        assert len({row["$timestamp"] for row in rows[:5]}) == 1
        assert {row["$tablet_index"] for row in rows} == {0}

        advance = ("--partition-index", "0", "--old-offset", "0", "--new-offset", "42")
        yt("--proxy", "hume", "advance-consumer", CONSUMER, REMOTE_QUEUE, *advance)
        trimmed = ("--proxy", "pythia", "get", f"{QUEUE}/@queue_partitions/0/lower_row_index")
        wait_until(lambda: clusters.value(*trimmed) == 42)
        rows = clusters.rows(*pull, "--max-row-count", "5")
        next_rows = [(42, "foobar", 951), (43, "megafoo", 975), (44, "megabar", 999), (45, "foo", 1019), (46, "bar", 1039)]
        assert data_of(rows) == next_rows
