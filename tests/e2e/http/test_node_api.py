"""The node itself over the admin API: cluster, overview, storage, pipelines and settings."""

from __future__ import annotations

import json
import time
from pathlib import Path
from urllib.request import urlopen

from confluent_kafka import Producer

from tests.e2e.http.api_client import ApiClient, client_of
from tests.e2e.running_node import RunningNode, running_node


def test_the_cluster_says_what_it_is(api: ApiClient, node: RunningNode) -> None:
    shown = api.get("/cluster")
    assert (shown["id"], shown["node_id"], shown["erasure"]) == (node.ready["cluster_id"], 1, "none")
    assert shown["listeners"]["kafka"] == node.bootstrap
    assert shown["security"] == {"sasl": False, "tls": False}
    assert abs(shown["now_ms"] - time.time() * 1000) < 60_000
    assert shown["user"] is None


def test_the_overview_has_rates_and_the_largest_lag(api: ApiClient, node: RunningNode) -> None:
    api.post("/topics", {"name": "busy", "partitions": 2})
    node.ok("group", "reset", "slow", "--topic", "busy", "--to", "latest", "--yes")
    deadline = time.monotonic() + 20
    while True:
        for number in range(20):
            api.post("/topics/busy/messages", {"value": "x" * 100, "partition": number % 2})
        shown = api.get("/overview")
        if shown["lag_max"] is not None and shown["produce"]["messages_per_s"] > 0:
            break
        assert time.monotonic() < deadline, shown
        time.sleep(0.3)
    assert (shown["lag_max"]["consumer"], shown["lag_max"]["topic"]) == ("slow", "busy")
    assert shown["produce"]["bytes_per_s"] > shown["produce"]["messages_per_s"]
    assert 0 < shown["storage"]["free"] <= shown["storage"]["total"]
    assert shown["storage"]["used"] > 0
    while shown["lag_max"]["messages"] != api.get("/consumers/slow")["lag_messages"]:
        assert time.monotonic() < deadline, "the largest lag is not that of the whole group"
        time.sleep(0.3)
        shown = api.get("/overview")


def test_a_figure_has_a_history(api: ApiClient) -> None:
    deadline = time.monotonic() + 20
    while not (found := api.get("/history", metric="produce_messages", points=10))["times"]:
        assert time.monotonic() < deadline
        time.sleep(0.3)
    (values,) = found["series"].values()
    assert len(values) == len(found["times"])
    assert found["times"] == sorted(found["times"])
    assert api.call("GET", "/history", metric="colour").status == 400
    assert api.call("GET", "/history", metric="loop_lag_ms", **{"from": 2, "to": 1}).status == 400


def test_every_metric_is_explained(api: ApiClient) -> None:
    items = api.get("/metrics-catalogue")["items"]
    assert len(items) > 20
    assert all(item["doc"] and item["name"].startswith("penstock_") for item in items)


def test_storage_is_shown_and_scrubbed(api: ApiClient) -> None:
    api.call("POST", "/topics", {"name": "stored"})
    api.post("/topics/stored/messages", {"value": "x" * 10_000})
    (group,) = api.get("/storage")["groups"]
    assert (group["erasure"], group["state"]) == ("none", "healthy")
    (vdisk,) = group["vdisks"]
    assert (vdisk["state"], vdisk["fail_domain"], vdisk["to_heal"]) == ("serving", 0, 0)
    assert vdisk["used"] > 10_000
    assert api.call("POST", "/storage/scrub").json == {"started": True}
    deadline = time.monotonic() + 20
    while api.get("/storage")["groups"][0]["scrub"]["last_ms"] is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert api.get("/storage")["groups"][0]["scrub"]["found"] == 0


def test_a_group_without_one_of_its_disks_is_degraded_and_says_so(tmp_path: Path) -> None:
    argv = ["--data-dir", str(tmp_path / "data"), "--http-port", "0"]
    with running_node(tmp_path / "log", [*argv, "--erasure", "block-4-2"]) as running:
        api = client_of(running)
        (group,) = api.get("/storage")["groups"]
        assert [vdisk["fail_domain"] for vdisk in group["vdisks"]] == list(range(8))
        assert group["state"] == "healthy"
        broken = Path(group["vdisks"][3]["path"])
        running.stop()
    lost = broken.rename(tmp_path / "away")
    broken.touch()  # a file in its place: nothing can be opened there
    with running_node(tmp_path / "log", argv) as running:
        api = client_of(running)
        (group,) = api.get("/storage")["groups"]
        assert group["state"] == "degraded"
        assert [vdisk["order"] for vdisk in group["vdisks"] if vdisk["state"] == "out"] == [3]
        deadline = time.monotonic() + 20
        while not (alerts := api.get("/overview")["alerts"]):
            assert time.monotonic() < deadline
            time.sleep(0.3)
        assert ("warning", "STORAGE_DEGRADED", "/storage") in [(one["level"], one["code"], one["link"]) for one in alerts]
    assert lost.exists()


def test_pipelines_are_what_their_runners_say(api: ApiClient) -> None:
    assert api.get("/pipelines") == {"items": [], "total": 0}
    topic = "__penstock_pipelines"
    api.post("/topics", {"name": topic, "config": {"cleanup.policy": "compact"}})
    report = {"name": "p", "kind": "export", "state": "running", "rows_read": 5, "updated_ms": int(time.time() * 1000), "new": 1}
    api.post(f"/topics/{topic}/messages", {"key": "p", "value": {**report, "rows_read": 1}})
    api.post(f"/topics/{topic}/messages", {"key": "p", "value": report})
    api.post(f"/topics/{topic}/messages", {"key": "odd", "value": "not a report"})
    shown = api.get("/pipelines/p")
    assert (shown["kind"], shown["rows_read"], shown["is_alive"], shown["last_error"]) == ("export", 5, True, None)
    assert [item["name"] for item in api.get("/pipelines")["items"]] == ["odd", "p"]
    api.post(f"/topics/{topic}/messages", {"key": "p", "value": None})
    assert api.call("GET", "/pipelines/p").status == 404
    assert api.get("/topics", search=topic)["items"][0]["is_internal"]


def test_rows_that_a_pipeline_lost_are_told_by_the_api_the_command_and_metrics(api: ApiClient, node: RunningNode) -> None:
    topic = "__penstock_pipelines"
    api.call("POST", "/topics", {"name": topic, "config": {"cleanup.policy": "compact"}})
    lost = {"dead_letters": 3, "late_rows": 73823, "empty_rows": 2}
    report = {"name": "lossy", "kind": "transform", "state": "finished", "updated_ms": int(time.time() * 1000), **lost}
    api.post(f"/topics/{topic}/messages", {"key": "lossy", "value": report})
    shown = api.get("/pipelines/lossy")
    assert {name: shown[name] for name in lost} == lost
    api.post(f"/topics/{topic}/messages", {"key": "odd", "value": "not a report"})
    listed = {line.split("\t")[0]: line.split("\t")[2] for line in node.ok("pipeline", "list", "--no-headers").splitlines()}
    assert (listed["lossy"], listed["odd"]) == ("finished", "unknown")
    assert "its last report cannot be read" in node.ok("pipeline", "status", "odd")
    said = node.ok("pipeline", "status", "lossy")
    for line in ("dead letters 3", "late rows    73,823, dropped by the watermark", "empty rows   2, without any field"):
        assert line in said, said
    http = node.ready["listeners"]["http"]
    wanted = [f'penstock_pipeline_{name}_total{{pipeline="lossy"}} {count}' for name, count in lost.items()]
    deadline = time.monotonic() + 60
    while not all(line in _text(f"http://{http['host']}:{http['port']}/metrics") for line in wanted):
        assert time.monotonic() < deadline, wanted
        time.sleep(0.2)


def _text(url: str) -> str:
    with urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def test_settings_are_shown_with_their_options_and_without_secrets(api: ApiClient, node: RunningNode) -> None:
    items = {item["key"]: item for item in api.get("/settings", limit=500)["items"]}
    assert items["http_port"]["option"] == "--http-port"
    assert items["http_port"]["variable"] == "PENSTOCK_HTTP_PORT"
    assert (items["http_port"]["value"], items["http_port"]["is_default"]) == ("0", False)
    assert (items["sasl"]["value"], items["sasl"]["is_default"]) == ("false", True)
    assert items["erasure"]["value"] == "none"
    assert items["admin_password"]["option"] is None
    assert json.dumps(items["data_dir"]["value"]) == json.dumps(node.ready["data_dir"])


def test_quotas_are_set_shown_and_deleted_as_kafka_clients_see_them(api: ApiClient, node: RunningNode) -> None:
    assert api.get("/quotas")["items"] == []
    wanted = {"user": "anna", "client": "", "producer_byte_rate": 1 << 20, "controller_mutation_rate": 0.5}
    assert api.call("PUT", "/quotas", wanted).status == 200
    assert api.get("/quotas")["items"] == [{**wanted, "consumer_byte_rate": None}]
    assert api.call("PUT", "/quotas", {"user": "anna", "client": "", "consumer_byte_rate": 10}).status == 200
    (quota,) = api.get("/quotas")["items"]
    assert (quota["producer_byte_rate"], quota["consumer_byte_rate"]) == (None, 10), "what is not given is not limited"
    assert api.call("PUT", "/quotas", {"user": "anna", "client": ""}).status == 200
    assert api.get("/quotas")["items"] == []
    refused = api.call("PUT", "/quotas", {"producer_byte_rate": 5})
    assert (refused.status, refused.code) == (422, "INVALID_QUOTA")
    assert api.call("PUT", "/quotas", {"user": "a", "producer_byte_rate": 0}).status == 400


def test_a_quota_of_the_api_throttles_a_kafka_producer(api: ApiClient, node: RunningNode) -> None:
    node.ok("topic", "create", "limited")
    throttled: list[float] = []
    settings = {"bootstrap.servers": node.bootstrap, "client.id": "greedy"}
    producer = Producer({**settings, "throttle_cb": lambda event: throttled.append(event.throttle_time)})
    assert api.call("PUT", "/quotas", {"client": "greedy", "producer_byte_rate": 1000}).status == 200
    producer.produce("limited", b"x" * 3000)
    assert producer.flush(30) == 0
    producer.poll(1)
    assert throttled, "the client was told to wait"
    assert api.call("PUT", "/quotas", {"client": "greedy"}).status == 200
