"""Exports of queues with the real client: tables appear on schedule, with every row once, and `yt read-table` reads them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from yt.wrapper import YtError

from tests.e2e.yt.yt_clusters import YtClusters, wait_until, yt_clusters

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
SCHEMA = [
    {"name": "data", "type": "string"},
    {"name": "count", "type": "uint64"},
    {"name": "$timestamp", "type": "uint64"},
    {"name": "$cumulative_data_weight", "type": "int64"},
]


def make(client: Any, name: str, *, tablets: int = 1, **more: Any) -> tuple[str, str]:
    """A queue, and a directory that it is exported to every second."""
    queue, directory = f"//tmp/{name}", f"//tmp/{name}_exports"
    client.create("table", queue, attributes={"dynamic": True, "schema": SCHEMA, "tablet_count": tablets})
    client.mount_table(queue, sync=True)
    client.create("map_node", directory)
    config = {"main": {"export_directory": directory, "export_period": 1000, **more}}
    client.set(f"{queue}/@static_export_config", config)
    return queue, directory


def exported(client: Any, directory: str) -> list[dict[str, Any]]:
    """All rows of all tables, in the order of the tables' names."""
    return [row for name in sorted(client.list(directory)) for row in client.read_table(f"{directory}/{name}")]


def test_rows_come_to_static_tables(pythia: YtClusters) -> None:
    client = pythia.client("pythia")
    queue, directory = make(client, "exported", tablets=2)
    client.insert_rows(queue, [{"data": "foo", "count": 2**63, "$tablet_index": 0}, {"data": "bar", "$tablet_index": 1}])
    wait_until(lambda: len(client.list(directory)) == 1)
    [name] = client.list(directory)
    table = f"{directory}/{name}"

    began_s, period_s = map(int, name.split("-"))
    assert period_s == 1
    assert client.get(f"{table}/@row_count") == 2
    assert not client.get(f"{table}/@dynamic")
    assert [column["name"] for column in client.get(f"{table}/@schema")] == [column["name"] for column in SCHEMA]
    rows = list(client.read_table(table))
    assert [(row["data"], row["count"]) for row in rows] == [("foo", 2**63), ("bar", None)]
    assert rows[0]["$cumulative_data_weight"] == 28 == rows[1]["$cumulative_data_weight"] + 8
    assert all(row["$timestamp"] >> 30 < began_s + period_s for row in rows)
    assert "$tablet_index" not in rows[0]

    progress = client.get(f"{directory}/@queue_static_export_progress")
    assert progress["last_exported_fragment_unix_ts"] == began_s + period_s
    assert progress["queue_object_id"] == client.get(f"{queue}/@id")
    # The end of the transaction that wrote to both tablets has an index of its own.
    assert {number: one["row_count"] for number, one in progress["tablets"].items()} == {"0": 2, "1": 2}
    assert client.get(f"{queue}/@queue_status/exports/main/progress")["tablets"] == progress["tablets"]
    assert client.get(f"{directory}/@queue_static_export_destination/originating_queue_id") == client.get(f"{queue}/@id")


def test_a_table_is_read_by_the_command_in_parts_and_formats(pythia: YtClusters) -> None:
    client = pythia.client("pythia")
    queue, directory = make(client, "parts", output_table_name_pattern="%Y", use_upper_bound_for_table_names=True)
    client.insert_rows(queue, [{"data": str(number), "count": number} for number in range(100)])
    wait_until(lambda: len(client.list(directory)) == 1)
    table = f"{directory}/{client.list(directory)[0]}"
    assert table.endswith(time.strftime("/%Y", time.gmtime()))
    assert len(pythia.rows("--proxy", "pythia", "read-table", table)) == 100
    some = pythia.rows("--proxy", "pythia", "read-table", f"{table}{{data}}[#10:#12,#99]")
    assert some == [{"data": "10"}, {"data": "11"}, {"data": "99"}]
    lines = pythia.yt("--proxy", "pythia", "read-table", f"{table}[#5]", "--format", "json")
    assert '"data": "5"' in lines
    with pytest.raises(YtError, match="row_index"):
        list(client.read_table(client.TablePath(table, lower_key=["a"])))
    with pytest.raises(YtError, match="select-rows"):
        list(client.read_table(queue))
    # A second table of the same name cannot be.
    client.insert_rows(queue, [{"data": "more"}])
    wait_until(lambda: "error" in client.get(f"{queue}/@queue_status/exports/main"))
    assert "already" in client.get(f"{queue}/@queue_status/exports/main/error/message")
    assert client.get(f"{queue}/@queue_status/alerts")


def test_tables_expire_and_can_be_removed(pythia: YtClusters) -> None:
    client = pythia.client("pythia")
    queue, directory = make(client, "short", export_ttl=3000)
    client.insert_rows(queue, [{"data": "foo"}])
    wait_until(lambda: len(client.list(directory)) == 1)
    table = f"{directory}/{client.list(directory)[0]}"
    assert client.get(f"{table}/@expiration_time").endswith("Z")
    wait_until(lambda: client.list(directory) == [])
    client.insert_rows(queue, [{"data": "bar"}])
    wait_until(lambda: len(client.list(directory)) == 1)
    table = f"{directory}/{client.list(directory)[0]}"
    client.set(f"{table}/@expiration_time", "2100-01-01T00:00:00Z")
    assert [row["data"] for row in client.read_table(table)] == ["bar"]
    client.remove(table)
    assert client.list(directory) == []


def test_trimming_waits_for_the_export(pythia: YtClusters) -> None:
    client = pythia.client("pythia")
    queue, directory = make(client, "waiting")
    client.set(f"{queue}/@static_export_config/main/export_directory", "//tmp/not_there")
    client.create("queue_consumer", "//tmp/waiting_reader")
    client.register_queue_consumer(queue, "//tmp/waiting_reader", vital=True)
    client.set(f"{queue}/@auto_trim_config", {"enable": True})
    client.insert_rows(queue, [{"data": "foo"}, {"data": "bar"}])
    client.advance_consumer("//tmp/waiting_reader", queue, partition_index=0, old_offset=0, new_offset=2)
    wait_until(lambda: "no directory" in str(client.get(f"{queue}/@queue_status")))
    assert client.get(f"{queue}/@queue_partitions/0/lower_row_index") == 0
    client.set(f"{queue}/@static_export_config/main/export_directory", directory)
    wait_until(lambda: bool(client.get(f"{queue}/@queue_partitions/0/lower_row_index") == 2))
    assert [row["data"] for row in exported(client, directory)] == ["foo", "bar"]


def test_an_export_that_makes_no_sense_is_refused(pythia: YtClusters) -> None:
    client = pythia.client("pythia")
    queue, directory = make(client, "strict")
    for wrong in ({"main": {"export_directory": directory}}, {"main": {"export_period": 1000}}, {"main": 1}):
        with pytest.raises(YtError):
            client.set(f"{queue}/@static_export_config", wrong)
    with pytest.raises(YtError, match="attribute of a queue"):
        client.set(f"{directory}/@static_export_config", {})
    with pytest.raises(YtError, match="cannot be set"):
        client.set(f"{directory}/@queue_static_export_progress", {})
    with pytest.raises(YtError, match="created only by exports"):
        client.create("table", "//tmp/static")
    with client.Transaction(), pytest.raises(YtError, match="cannot be part of a transaction"):
        client.set(f"{directory}/@note", 1)


def test_each_row_is_exported_once_though_the_node_is_killed(tmp_path: Path) -> None:
    with yt_clusters(tmp_path, "pythia") as clusters:
        client = clusters.client("pythia")
        queue, directory = make(client, "killed")
        written: list[str] = []
        for round_ in range(4):
            for number in range(5):
                data = f"{round_}-{number}"
                client.insert_rows(queue, [{"data": data}])
                written.append(data)
            time.sleep(0.4)
            clusters.kill("pythia")
        wait_until(lambda: len(exported(client, directory)) >= len(written))
        assert [row["data"] for row in exported(client, directory)] == written


def test_messages_of_kafka_are_exported_too(pythia: YtClusters) -> None:
    from confluent_kafka import Producer

    client = pythia.client("pythia")
    producer = Producer({"bootstrap.servers": pythia.nodes["pythia"].bootstrap})
    producer.produce("clicks", b"value", key=b"key", headers=[("h", b"1")])
    assert producer.flush(20) == 0
    client.create("map_node", "//tmp/clicks_exports")
    export = {"export_directory": "//tmp/clicks_exports", "export_cron_schedule": "* * * * * *"}
    client.set("//topics/clicks/@static_export_config", {"main": export})
    wait_until(lambda: len(client.list("//tmp/clicks_exports")) == 1)
    [row] = exported(client, "//tmp/clicks_exports")
    assert (row["key"], row["value"], row["headers"]) == ("key", "value", [["h", "1"]])
