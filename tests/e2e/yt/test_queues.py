"""Queues, consumers and producers through the real Python client, line by line of what the seed promises."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from tests.e2e.yt.queue_objects import SCHEMA, Make, fails
from tests.e2e.yt.yt_clusters import wait_until

# The client leaves the connections of answers that are errors to the garbage collector.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def test_rows_are_pulled_with_their_places(make: Make) -> None:
    objects = make()
    objects.insert("foo", "bar")
    objects.insert("foobar")
    rows = objects.pull()
    assert [(row["$tablet_index"], row["$row_index"], row["data"]) for row in rows] == [
        (0, 0, "foo"),
        (0, 1, "bar"),
        (0, 2, "foobar"),
    ]
    assert [row["$cumulative_data_weight"] for row in rows] == [20, 40, 63]
    assert rows[0]["$timestamp"] == rows[1]["$timestamp"] < rows[2]["$timestamp"]
    assert objects.data(offset=2) == ["foobar"]
    assert objects.data(offset=3) == objects.data(offset=1000) == []
    assert len(objects.pull(max_row_count=1)) == 1
    assert len(objects.pull(max_data_weight=1)) >= 1


def test_a_thousand_rows_come_unless_more_are_asked_for(make: Make) -> None:
    objects = make()
    objects.insert(*(str(number) for number in range(1500)))
    assert len(objects.pull()) == 1000
    assert len(objects.pull(offset=1000)) == 500
    assert len(objects.pull(max_row_count=5000)) == 1500
    large = "x" * (6 << 20)
    for _ in range(4):
        objects.insert(large, tablet=0)
    found = len(objects.pull(offset=1500))
    assert 1 <= found < 4  # at most about 16 MB come at once


def test_only_an_empty_answer_means_that_there_is_nothing(make: Make) -> None:
    objects = make(tablets=2)
    with objects.client.Transaction(type="tablet"):
        objects.insert("a", tablet=0)
        objects.insert("b", tablet=1)
    objects.insert("c", tablet=0)
    rows = objects.pull(offset=1)  # here the transaction ends, which is no row
    assert [row["data"] for row in rows] == ["c"]
    assert rows[0]["$row_index"] >= 1
    assert objects.pull(offset=rows[0]["$row_index"] + 1) == []


def test_rows_without_a_tablet_go_to_any_and_carry_the_time_of_their_commit(make: Make) -> None:
    objects = make(tablets=3)
    began_s = int(time.time())
    for number in range(12):
        objects.client.insert_rows(objects.queue, [{"data": str(number)}, {"data": f"{number} too"}])
    found = [objects.pull(tablet=tablet) for tablet in range(3)]
    assert sorted(len(rows) for rows in found) != [0, 0, 24]
    assert sum(len(rows) for rows in found) == 24
    for rows in found:
        stamps = [row["$timestamp"] for row in rows]
        assert stamps == sorted(stamps)
        assert all(began_s <= stamp >> 30 <= time.time() for stamp in stamps)


def test_a_pull_tells_where_it_began(make: Make) -> None:
    objects = make()
    objects.insert("a", "b", "c")
    objects.client.trim_rows(objects.queue, 0, 2)
    for offset, expected in ((0, 2), (2, 2), (3, 3)):
        rows = objects.client.pull_queue(objects.queue, offset=offset, partition_index=0, raw=True, format="yson")
        assert rows.response_parameters["start_offset"] == expected


def test_reading_below_what_is_trimmed_begins_with_the_first_row_kept(make: Make) -> None:
    objects = make()
    objects.insert("a", "b", "c")
    objects.client.trim_rows(objects.queue, 0, 2)
    objects.client.trim_rows(objects.queue, 0, 1)
    assert [row["$row_index"] for row in objects.pull()] == [2]
    assert objects.pull()[0]["$cumulative_data_weight"] == 54
    fails(1, lambda: objects.client.trim_rows(objects.queue, 0, 4))


def test_bad_offsets_and_partitions_are_refused(make: Make) -> None:
    objects = make()
    fails(1, lambda: objects.pull(offset=-1))
    fails(1701, lambda: objects.pull(tablet=7))
    fails(1701, lambda: objects.insert("x", tablet=7))
    fails(500, lambda: list(objects.client.pull_queue("//tmp/nowhere", offset=0, partition_index=0)))


def test_rows_that_do_not_fit_the_schema_are_refused_all_of_them(make: Make) -> None:
    objects = make()
    fails(307, lambda: objects.client.insert_rows(objects.queue, [{"data": "ok"}, {"other": 1}]))
    fails(307, lambda: objects.client.insert_rows(objects.queue, [{"data": 5}]))
    assert objects.data() == []


def test_a_row_may_hold_any_bytes(make: Make) -> None:
    objects = make()
    raw = b'{data="\\xFF\\x00\\n"};{data="\xd0\x9f"};{data=#};'
    objects.client.insert_rows(objects.queue, raw, raw=True, format="yson")
    pulled = objects.client.pull_queue(objects.queue, offset=0, partition_index=0, raw=True, format="<format=text>yson").read()
    assert b'"data"="\\xFF\\0\\n"' in pulled
    assert b'"data"="\\xD0\\x9F"' in pulled
    assert b'"data"=#' in pulled


def test_unmounted_and_frozen_tables(make: Make) -> None:
    objects = make()
    objects.insert("a")
    objects.client.freeze_table(objects.queue, sync=True)
    assert objects.data() == ["a"]
    fails(1702, lambda: objects.insert("b"))
    objects.client.unmount_table(objects.queue, sync=True)
    fails(1702, objects.pull)
    objects.client.mount_table(objects.queue, sync=True)
    objects.insert("b")
    assert objects.data() == ["a", "b"]


def test_only_a_registered_consumer_pulls(make: Make) -> None:
    objects = make()
    objects.insert("a", "b", "c")

    def pull(offset: int | None) -> list[str]:
        rows = objects.client.pull_consumer(objects.consumer, objects.queue, offset=offset, partition_index=0)
        return [row["data"] for row in rows]

    fails(901, lambda: pull(0))
    objects.register(vital=False)
    assert pull(1) == ["b", "c"]
    assert pull(None) == ["a", "b", "c"]
    objects.advance(0, 2)
    assert pull(None) == ["c"]
    objects.client.unregister_queue_consumer(objects.queue, objects.consumer)
    fails(901, lambda: pull(0))


def test_advancing_compares_and_sets(make: Make) -> None:
    objects = make()
    objects.advance(0, 5)
    error = fails(3100, lambda: objects.advance(4, 6))
    assert "expected_offset" in str(error.inner_errors)
    objects.advance(5, 7)
    objects.advance(None, 3)
    assert objects.offsets() == [3]
    fails(1, lambda: objects.advance(None, -1))


def test_registering_again_changes_the_registration(make: Make) -> None:
    objects = make(tablets=3)
    objects.register(vital=True)
    objects.register(vital=False, partitions=[0, 2])
    [found] = objects.client.list_queue_consumer_registrations(queue_path=objects.queue)
    assert (found["vital"], list(found["partitions"])) == (False, [0, 2])
    assert found["queue_path"].attributes["cluster"] == found["consumer_path"].attributes["cluster"] == "pythia"
    assert objects.client.list_queue_consumer_registrations(queue_path="//tmp/nowhere") == []
    objects.client.remove(objects.queue)
    objects.client.unregister_queue_consumer(objects.queue, objects.consumer)
    assert objects.client.list_queue_consumer_registrations(consumer_path=objects.consumer) == []


def test_trimming_stops_at_the_slowest_vital_consumer(make: Make) -> None:
    objects = make()
    objects.insert(*"abcdefgh")
    objects.client.set(f"{objects.queue}/@auto_trim_config", {"enable": True})
    wait_until(lambda: "alerts" in objects.client.get(f"{objects.queue}/@queue_status"))
    assert objects.lower() == 0
    second = f"{objects.consumer}_2"
    objects.client.create("queue_consumer", second)
    objects.client.register_queue_consumer(objects.queue, second, vital=True)
    objects.register(vital=True)
    objects.advance(0, 6)
    objects.client.advance_consumer(second, objects.queue, partition_index=0, old_offset=0, new_offset=3)
    wait_until(lambda: objects.lower() == 3)
    objects.client.set(f"{objects.queue}/@auto_trim_config/retained_rows", 4)
    objects.client.register_queue_consumer(objects.queue, second, vital=False)
    wait_until(lambda: objects.lower() == 4)
    objects.client.remove(f"{objects.queue}/@auto_trim_config/retained_rows")
    wait_until(lambda: objects.lower() == 6)


def test_nothing_is_trimmed_while_a_vital_consumer_is_in_error(make: Make) -> None:
    objects = make()
    objects.insert("a", "b")
    objects.register(vital=True)
    objects.advance(0, 2)
    objects.client.unmount_table(objects.consumer, sync=True)
    objects.client.set(f"{objects.queue}/@auto_trim_config", {"enable": True})
    wait_until(lambda: "alerts" in objects.client.get(f"{objects.queue}/@queue_status"))
    assert objects.lower() == 0
    objects.client.mount_table(objects.consumer, sync=True)
    wait_until(lambda: objects.lower() == 2)


def test_the_status_of_a_consumer_tells_how_far_behind_it_is(make: Make) -> None:
    objects = make()
    objects.register(vital=True)
    objects.insert("foo", "bar", "foobar")

    def status() -> dict[str, Any]:
        shown = objects.client.get(f"{objects.consumer}/@queue_consumer_partitions")
        return dict(shown[f"pythia:{objects.queue}"][0])

    first = status()
    assert (first["disposition"], first["unread_row_count"], first["unread_data_weight"]) == ("pending_consumption", 3, 63)
    assert first["processing_lag"] >= 0
    objects.advance(0, 2)
    assert (status()["unread_row_count"], status()["unread_data_weight"]) == (1, 23)
    objects.advance(2, 3)
    assert (status()["disposition"], status()["processing_lag"]) == ("up_to_date", 0)
    objects.advance(3, 5)
    assert (status()["disposition"], status()["unread_row_count"]) == ("ahead", -2)
    objects.client.trim_rows(objects.queue, 0, 2)
    objects.advance(5, 1)
    assert status()["disposition"] == "expired"


def test_a_transaction_takes_effect_as_a_whole(make: Make) -> None:
    objects = make(tablets=2)
    objects.register(vital=True)
    with objects.client.Transaction(type="tablet"):
        objects.insert("one", tablet=0)
        objects.insert("two", tablet=1)
        objects.advance(0, 1)
        assert objects.data() == []
    assert (objects.data(tablet=0), objects.data(tablet=1), objects.offsets()) == (["one"], ["two"], [1])
    aborted = objects.client.start_transaction(type="tablet", timeout=10_000)
    with objects.client.Transaction(transaction_id=aborted):
        objects.insert("lost", tablet=0)
        objects.advance(1, 2)
    objects.client.abort_transaction(aborted)
    assert (objects.data(), objects.offsets()) == (["one"], [1])
    fails(11000, lambda: objects.client.commit_transaction("1-2-30005-4"))


def test_of_two_transactions_that_advance_one_consumer_one_fails(make: Make) -> None:
    objects = make()
    first = objects.client.start_transaction(type="tablet", timeout=10_000)
    second = objects.client.start_transaction(type="tablet", timeout=10_000)
    for transaction in (first, second):
        with objects.client.Transaction(transaction_id=transaction):
            objects.advance(0, 1)
            objects.insert(transaction)
    objects.client.commit_transaction(first)
    fails(1700, lambda: objects.client.commit_transaction(second))
    assert objects.data() == [first]


def test_a_producer_session_stores_each_row_once(make: Make) -> None:
    objects = make()
    client = objects.client

    def session() -> dict[str, Any]:
        return dict(client.create_queue_producer_session(objects.producer, objects.queue, "s"))

    def push(epoch: int, *numbers: int) -> dict[str, Any]:
        rows = [{"data": str(number), "$sequence_number": number} for number in numbers]
        return dict(client.push_queue_producer(objects.producer, objects.queue, "s", epoch, rows))

    fails(3101, lambda: push(0, 1))
    assert (session()["epoch"], session()["epoch"]) == (0, 1)
    assert push(1, 1, 2, 5) == {"last_sequence_number": 5, "skipped_row_count": 0}
    assert push(1, 2, 5, 6) == {"last_sequence_number": 6, "skipped_row_count": 2}
    again = session()
    assert (again["epoch"], again["sequence_number"]) == (2, 6)
    fails(3102, lambda: push(1, 7))
    fails(3101, lambda: push(9, 7))
    fails(3103, lambda: push(2, 8, 8))
    assert objects.data() == ["1", "2", "5", "6"]
    [row] = client.select_rows(f"session_id, sequence_number, epoch from [{objects.producer}]")
    assert row == {"session_id": "s", "sequence_number": 6, "epoch": 2}


def test_pushes_of_one_transaction_see_each_other(make: Make) -> None:
    objects = make(tablets=2)
    client = objects.client
    epoch = client.create_queue_producer_session(objects.producer, objects.queue, "s")["epoch"]
    with client.Transaction(type="tablet"):
        for numbers in ((1, 2), (2, 3)):
            rows = [{"data": str(each), "$sequence_number": each, "$tablet_index": each % 2} for each in numbers]
            client.push_queue_producer(objects.producer, objects.queue, "s", epoch, rows)
    assert objects.data(tablet=0) + objects.data(tablet=1) == ["2", "1", "3"]
    assert client.create_queue_producer_session(objects.producer, objects.queue, "s")["sequence_number"] == 3


def test_queries_over_a_queue(make: Make) -> None:
    objects = make(tablets=2)
    objects.insert("a", "b", "c", tablet=0)
    objects.insert("d", tablet=1)
    select = objects.client.select_rows
    assert [row["data"] for row in select(f"* from [{objects.queue}]")] == ["a", "b", "c", "d"]
    query = f"data as d from [{objects.queue}] where [$tablet_index] = 0 and [$row_index] >= 1 order by [$row_index] desc limit 1"
    assert list(select(query)) == [{"d": "c"}]
    assert [row["data"] for row in select(f'data from [{objects.queue}] where data in ("a", "d")')] == ["a", "d"]
    fails(1, lambda: list(select(f"nothing from [{objects.queue}]")))
    fails(1, lambda: list(select(f"data from [{objects.queue}] group by data")))


def test_nodes_and_their_attributes(make: Make) -> None:
    objects = make()
    client, folder = objects.client, objects.queue.rpartition("/")[0]
    assert client.list(folder) == ["consumer", "producer", "queue"]
    assert {str(each): each.attributes["type"] for each in client.list(folder, attributes=["type"])}["queue"] == "table"
    assert list(client.search(folder, node_type="map_node")) == [folder]
    assert client.get(folder) == {"consumer": None, "producer": None, "queue": None}
    client.set(f"{objects.queue}/@note", {"a": {"b": [1, 2]}})
    assert client.get(f"{objects.queue}/@note/a/b/1") == 2
    client.set(f"{objects.queue}/@note/a/c", "x")
    assert client.get(f"{objects.queue}/@note") == {"a": {"b": [1, 2], "c": "x"}}
    assert client.exists(f"{objects.queue}/@note")
    assert not client.exists(f"{objects.queue}/@other")
    attributes = client.get(f"{objects.queue}/@")
    assert (attributes["tablet_state"], attributes["dynamic"], attributes["sorted"]) == ("mounted", True, False)
    assert client.get(f"#{attributes['id']}/@path") == objects.queue
    fails(1, lambda: client.set(f"{objects.queue}/@id", "x"))
    fails(1, lambda: client.set(f"{objects.queue}/@auto_trim_config", {"enable": True, "retained_lifetime_duration": 1500}))
    fails(1, lambda: client.set(f"{objects.queue}/@static_export_config", {"main": {}}))
    fails(501, lambda: client.create("table", objects.queue, attributes={"dynamic": True, "schema": SCHEMA}))
    fails(500, lambda: client.create("map_node", "//tmp/no/such/folder"))
    fails(1, lambda: client.remove(folder))
    client.remove(folder, recursive=True)
    assert not client.exists(objects.queue)


def test_access_is_not_set_by_attributes_that_would_not_count(make: Make, client: Any) -> None:
    objects = make()
    rule = [{"action": "deny", "subjects": ["anna"], "permissions": ["read"]}]
    for name, value in (("acl", rule), ("inherit_acl", False)):
        fails(1, partial(client.set, f"{objects.queue}/@{name}", value))
        fails(1, partial(client.create, "map_node", "//tmp/ruled", attributes={name: value}))
    assert not client.exists("//tmp/ruled")


def test_attributes_that_would_not_count_are_refused(make: Make, client: Any) -> None:
    objects = make()
    value: object
    of_queues = {
        "max_data_ttl": 1000,
        "min_data_ttl": 1000,
        "row_count_to_keep": 5,
        "min_data_versions": 0,
        "max_data_versions": 1,
    }
    for name, value in of_queues.items():
        client.set(f"{objects.queue}/@{name}", value)
        assert client.get(f"{objects.queue}/@{name}") == value
        fails(1, partial(client.set, f"{objects.consumer}/@{name}", value))
        fails(1, partial(client.set, f"{objects.queue}/@{name}", -1))
    for name, value in (
        ("min_data_versions", 2),
        ("max_data_versions", 0),
        ("expiration_time", "2100-01-01T00:00:00Z"),
        ("expiration_timeout", 1000),
        ("erasure_codec", "lrc_12_2_2"),
        ("primary_medium", "ssd_blobs"),
    ):
        fails(1, partial(client.set, f"{objects.queue}/@{name}", value))
    table = {"dynamic": True, "schema": SCHEMA}
    for name, value in (("in_memory_mode", "compressed"), ("replication_factor", 3), ("pivot_keys", [[]]), ("row_count", 7)):
        fails(1, partial(client.create, "table", "//tmp/refused", attributes={**table, name: value}))
    fails(1, lambda: client.create("queue_consumer", "//tmp/refused", attributes={"tablet_count": 2}))
    assert not client.exists("//tmp/refused")
    said = {"in_memory_mode": "none", "atomicity": "full", "commit_ordering": "strong", "note": "mine"}
    client.create("table", "//tmp/taken", attributes={**table, **said})
    assert {name: client.get(f"//tmp/taken/@{name}") for name in said} == said


def test_several_commands_in_one_request(make: Make) -> None:
    objects = make()
    batch = objects.client.create_batch_client(raise_errors=False)
    batch.set(f"{objects.queue}/@note", {"a": 1})
    note, missing, there = batch.get(f"{objects.queue}/@note"), batch.get("//tmp/nowhere"), batch.exists(objects.queue)
    made = batch.create("map_node", f"{objects.queue}_folder")
    batch.commit_batch()
    assert (note.get_result(), there.get_result()) == ({"a": 1}, True)
    assert missing.get_error()["code"] == 500
    assert made.get_result().count("-") == 3


def test_a_queue_gets_columns_and_tablets(make: Make) -> None:
    objects = make()
    objects.insert("old")
    client = objects.client
    wider = [*SCHEMA, {"name": "count", "type": "uint64"}]
    fails(1, lambda: client.alter_table(objects.queue, schema=wider))
    client.unmount_table(objects.queue, sync=True)
    fails(307, lambda: client.alter_table(objects.queue, schema=[{"name": "data", "type": "int64"}]))
    fails(307, lambda: client.alter_table(objects.queue, schema=[*SCHEMA, {"name": "n", "type": "int64", "required": True}]))
    client.alter_table(objects.queue, schema=wider)
    client.reshard_table(objects.queue, tablet_count=3, sync=True)
    fails(1, lambda: client.reshard_table(objects.queue, tablet_count=1))
    client.mount_table(objects.queue, sync=True)
    client.insert_rows(objects.queue, [{"data": "new", "count": 7, "$tablet_index": 2}])
    assert objects.pull()[0]["count"] is None
    assert objects.pull(tablet=2)[0]["count"] == 7
    assert client.get(f"{objects.queue}/@queue_status/partition_count") == 3


def test_every_kind_of_column(make: Make) -> None:
    objects = make()
    types = ["int8", "uint16", "double", "boolean", "any", "utf8", "timestamp"]
    path = f"{objects.queue}_types"
    attributes = {"dynamic": True, "schema": [{"name": each, "type": each} for each in types]}
    objects.client.create("table", path, attributes=attributes)
    objects.client.mount_table(path, sync=True)
    row = {
        "int8": -128,
        "uint16": 65535,
        "double": 1.0,
        "boolean": False,
        "any": {"a": [1, "x", None]},
        "utf8": "п",
        "timestamp": 1,
    }
    objects.client.insert_rows(path, [row, {}])
    for format_ in ("<format=binary>yson", "<format=text>yson", "json"):
        pulled = objects.client.pull_queue(path, offset=0, partition_index=0, format=format_, raw=False)
        first, second = ({name: each.get(name) for name in types} for each in pulled)
        assert first == row
        assert set(second.values()) == {None}
