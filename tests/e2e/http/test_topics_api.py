"""Topics over the admin API: made, listed, configured, grown, trimmed and deleted; Kafka's clients see the same."""

from __future__ import annotations

import pytest

from tests.e2e.http.api_client import ApiClient, eventually
from tests.e2e.running_node import RunningNode


def test_a_topic_is_made_shown_and_deleted(api: ApiClient, node: RunningNode) -> None:
    made = api.post("/topics", {"name": "life", "partitions": 3, "config": {"retention.ms": "60000"}})
    assert (made["partitions"], made["retention_ms"], made["cleanup_policy"], made["messages"]) == (3, 60000, "delete", 0)
    assert "life" in node.ok("topic", "list")
    api.post("/topics/life/messages", {"value": "one", "partition": 1})
    shown = api.get("/topics/life")
    assert (shown["messages"], shown["is_internal"]) == (1, False)
    assert shown["bytes"] > 0
    assert api.call("DELETE", "/topics/life").json == {"done": True}
    gone = api.call("GET", "/topics/life")
    assert (gone.status, gone.code) == (404, "UNKNOWN_TOPIC")


def test_topics_are_listed_searched_sorted_and_paged(api: ApiClient) -> None:
    for number in range(5):
        api.post("/topics", {"name": f"Page-{number}", "partitions": number + 1})
    found = api.get("/topics", search="pAgE", sort="partitions", order="desc", limit=2, offset=1)
    assert found["total"] == 5
    assert [item["name"] for item in found["items"]] == ["Page-3", "Page-2"]
    assert [item["name"] for item in api.get("/topics", search="page-", limit=3)["items"]] == ["Page-0", "Page-1", "Page-2"]
    api.post("/topics/Page-4/messages", {"value": "x" * 1000})
    partitions = api.get("/topics/Page-4/partitions")
    assert partitions["total"] == 5
    assert sum(item["end"] for item in partitions["items"]) == 1
    written = next(item for item in partitions["items"] if item["end"])
    assert written["state"] == "serving"
    assert written["bytes"] == written["head_bytes"] + written["body_bytes"] > 1000
    assert written["last_append_ms"] > 1_600_000_000_000


def test_a_configuration_is_shown_changed_and_put_back(api: ApiClient) -> None:
    api.post("/topics", {"name": "told"})
    items = {item["name"]: item for item in api.get("/topics/told/config")["items"]}
    assert items["retention.ms"]["is_default"]
    assert items["retention.ms"]["doc"]
    changed = api.call("PATCH", "/topics/told/config", {"set": {"retention.ms": "1000"}})
    assert changed.status == 200
    items = {item["name"]: item for item in api.get("/topics/told/config")["items"]}
    assert (items["retention.ms"]["value"], items["retention.ms"]["is_default"]) == ("1000", False)
    assert api.call("PATCH", "/topics/told/config", {"unset": ["retention.ms"]}).status == 200
    assert api.get("/topics/told")["retention_ms"] == 7 * 24 * 3600 * 1000


def test_settings_say_what_they_allow_and_where_they_come_from(api: ApiClient) -> None:
    api.post("/topics", {"name": "typed", "config": {"retention.bytes": "1073741824"}})
    items = {item["name"]: item for item in api.get("/topics/typed/config")["items"]}
    kinds = {name: items[name]["form"] for name in ("retention.ms", "retention.bytes", "cleanup.policy", "preallocate")}
    assert kinds == {"retention.ms": "duration", "retention.bytes": "size", "cleanup.policy": "choices", "preallocate": "boolean"}
    assert items["compression.type"]["choices"][0] == "producer"
    assert (items["compression.zstd.level"]["low"], items["compression.zstd.level"]["high"]) == (-131072, 22)
    assert (items["retention.ms"]["unlimited"], items["segment.ms"]["unlimited"]) == ("-1", None)
    assert (items["retention.bytes"]["source"], items["retention.ms"]["source"]) == ("topic", "default")
    assert not items["flush.ms"]["has_effect"]


def test_a_change_is_validated_without_being_made(api: ApiClient) -> None:
    api.post("/topics", {"name": "tried"})
    wanted = {"set": {"retention.ms": "1000"}, "validate_only": True}
    answer = api.call("PATCH", "/topics/tried/config", wanted)
    assert {item["name"]: item["value"] for item in answer.json["items"]}["retention.ms"] == "1000"
    assert api.get("/topics/tried")["retention_ms"] == 7 * 24 * 3600 * 1000
    both = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    refused = api.call("PATCH", "/topics/tried/config", {"set": both, "validate_only": True})
    assert (refused.status, refused.code) == (422, "INVALID_CONFIG")


def test_a_topic_is_cloned_without_its_messages(api: ApiClient) -> None:
    api.post("/topics", {"name": "original", "partitions": 3, "config": {"retention.ms": "1000000", "cleanup.policy": "compact"}})
    api.post("/topics/original/messages", {"key": "k", "value": "1"})
    clone = api.post("/topics/original/clone", {"name": "cloned"})
    assert (clone["partitions"], clone["config"]) == (3, {"retention.ms": "1000000", "cleanup.policy": "compact"})
    assert (api.get("/topics/cloned")["messages"], api.get("/topics/cloned")["cleanup_policy"]) == (0, "compact")
    assert api.post("/topics/original/clone", {"name": "cloned-2", "partitions": 5})["partitions"] == 5
    assert api.call("POST", "/topics/original/clone", {"name": "cloned"}).code == "TOPIC_EXISTS"
    assert api.call("POST", "/topics/absent/clone", {"name": "other"}).code == "UNKNOWN_TOPIC"
    refused = api.call("POST", "/topics/original/clone", {"name": "other", "access_rules": True})
    assert (refused.status, refused.code) == (409, "NOT_SUPPORTED_HERE")
    assert api.call("GET", "/topics/other").status == 404, "nothing is created if the rules cannot be copied"


def test_partitions_say_where_they_are_and_the_largest_lag(api: ApiClient, node: RunningNode) -> None:
    api.post("/topics", {"name": "placed", "partitions": 2})
    for number in range(4):
        api.post("/topics/placed/messages", {"value": str(number), "partition": 1})
    node.ok("consume", "placed", "--group", "placed-readers", "-n", "1")
    eventually(lambda: api.get("/topics/placed/partitions")["items"][1]["lag"] == 3)
    empty, filled = api.get("/topics/placed/partitions")["items"]
    assert filled["lag_group"] == "placed-readers"
    assert filled["leader"] == api.get("/cluster")["node_id"]
    assert filled["replicas"] == filled["in_sync"] == [filled["leader"]]
    assert empty["lag"] in (0, None)


def test_partitions_are_added_and_never_taken_away(api: ApiClient) -> None:
    api.post("/topics", {"name": "grows"})
    assert api.post("/topics/grows/partitions", {"total": 4})["partitions"] == 4
    refused = api.call("POST", "/topics/grows/partitions", {"total": 2})
    assert (refused.status, refused.code) == (422, "INVALID_PARTITIONS")


def test_messages_before_an_offset_are_deleted(api: ApiClient) -> None:
    api.post("/topics", {"name": "trimmed"})
    for number in range(5):
        api.post("/topics/trimmed/messages", {"value": str(number)})
    assert api.post("/topics/trimmed/trim", {"offsets": {"0": 3}}) == {"starts": {"0": 3}}
    refused = api.call("POST", "/topics/trimmed/trim", {"offsets": {"0": 99}})
    assert refused.status == 400
    assert "ends at 5" in refused.json["error"]["message"]
    assert [item["offset"] for item in api.get("/topics/trimmed/messages", start="oldest")["items"]] == [3, 4]


def test_all_messages_are_deleted_and_offsets_go_on(api: ApiClient) -> None:
    api.post("/topics", {"name": "purged", "partitions": 2})
    for number in range(5):
        api.post("/topics/purged/messages", {"value": str(number), "partition": number % 2})
    assert api.post("/topics/purged/purge", {}) == {"deleted": 5}
    assert api.get("/topics/purged")["messages"] == 0
    assert api.post("/topics/purged/messages", {"value": "next", "partition": 0})["offset"] == 3


@pytest.mark.parametrize(
    ("request_line", "body", "status", "code"),
    [
        ("POST /topics", {"name": "a topic"}, 422, "INVALID_TOPIC_NAME"),
        ("POST /topics", {"name": "twice"}, 409, "TOPIC_EXISTS"),
        ("POST /topics", {"name": "new", "config": {"no.such": "1"}}, 422, "INVALID_CONFIG"),
        ("POST /topics", {"name": "new", "partition": 1}, 400, "MALFORMED_REQUEST"),
        ("POST /topics", {"name": "new", "partitions": 0}, 400, "MALFORMED_REQUEST"),
        ("POST /topics", {"name": "new", "partitions": "1"}, 400, "MALFORMED_REQUEST"),
        ("POST /topics", {"name": "__consumer_offsets"}, 422, "INVALID_TOPIC_NAME"),
        ("POST /topics", [], 400, "MALFORMED_REQUEST"),
        ("DELETE /topics/absent", None, 404, "UNKNOWN_TOPIC"),
        ("PATCH /topics/twice/config", {"set": {"retention.ms": "x"}}, 422, "INVALID_CONFIG"),
        ("PATCH /topics/twice/config", {"set": {"retention.ms": "1"}, "unset": ["retention.ms"]}, 422, "INVALID_CONFIG"),
        ("GET /topics?limit=501", None, 400, "MALFORMED_REQUEST"),
        ("GET /topics?limit=0", None, 400, "MALFORMED_REQUEST"),
        ("GET /topics?sort=colour", None, 400, "MALFORMED_REQUEST"),
        ("GET /topics?lmit=1", None, 400, "MALFORMED_REQUEST"),
        ("GET /topics?limit=1&limit=2", None, 400, "MALFORMED_REQUEST"),
        ("GET /nothing", None, 404, "NOT_FOUND"),
        ("PUT /topics", {}, 405, "METHOD_NOT_ALLOWED"),
    ],
)
def test_what_is_wrong_is_said(api: ApiClient, request_line: str, body: object, status: int, code: str) -> None:
    api.call("POST", "/topics", {"name": "twice"})
    method, path = request_line.split()
    answer = api.call(method, path, body)
    assert (answer.status, answer.code) == (status, code), answer
    assert answer.json["error"]["message"]
