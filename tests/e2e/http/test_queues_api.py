"""Queues over the admin API and `penstock queue`: consumers of every kind registered, trimming that waits for the vital ones."""

from __future__ import annotations

import pytest

from tests.e2e.http.api_client import ApiClient, eventually
from tests.e2e.running_node import RunningNode, penstock


def fill(api: ApiClient, topic: str, messages: int) -> None:
    api.post("/topics", {"name": topic, "partitions": 1})
    for number in range(messages):
        api.post(f"/topics/{topic}/messages", {"value": str(number)})


def starts_at(api: ApiClient, topic: str) -> int:
    start: int = api.get(f"/topics/{topic}/partitions")["items"][0]["start"]
    return start


def test_trimming_waits_for_a_vital_group(api: ApiClient, node: RunningNode) -> None:
    fill(api, "held", 5)
    where = {"PENSTOCK_HTTP": api.address}

    def queue(*argv: str) -> str:
        done = penstock("queue", *argv, variables=where)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    assert (
        queue("register", "held", "slow", "--vital") == "registered slow at held: messages that it has not read are not trimmed\n"
    )
    assert queue("trim", "held", "--keep-rows", "1") == (
        "trimming of held: on: rows that all vital consumers have read are deleted, except the last 1 rows\n"
    )
    node.ok("group", "reset", "slow", "--topic", "held", "--to", "3", "--yes")
    eventually(lambda: starts_at(api, "held") == 3)
    shown = queue("describe", "held")
    assert "//groups/slow, vital; next is row 3 of partition 0" in shown
    (listed,) = (line for line in queue("list").splitlines() if line.startswith("held\t"))
    assert listed.split("\t")[5:8] == ["1", "1", "on"]
    node.ok("group", "reset", "slow", "--topic", "held", "--to", "latest", "--yes")
    eventually(lambda: starts_at(api, "held") == 4)
    assert queue("unregister", "held", "slow") == "held no longer waits for slow\n"
    queue("trim", "held", "--off")
    found = api.get("/queues/held")
    assert (found["registrations"], found["trim"]["enable"]) == ([], False)


def test_a_registration_is_changed_listed_as_it_is_shown_and_ended(api: ApiClient) -> None:
    fill(api, "pair", 0)
    api.call("PUT", "/queues/pair/registrations/stream%3Ajobs", {"vital": True, "partitions": [0]})
    (one,) = api.get("/queues/pair")["registrations"]
    assert one["consumer"].endswith("://groups/stream:jobs")
    assert one["vital"]
    api.call("PUT", "/queues/pair/registrations/stream%3Ajobs", {"vital": False})
    (one,) = api.get("/queues/pair")["registrations"]
    assert not one["vital"]
    named = one["consumer"].replace(":", "%3A").replace("/", "%2F")
    assert api.call("DELETE", f"/queues/pair/registrations/{named}").json == {"done": True}
    gone = api.call("DELETE", f"/queues/pair/registrations/{named}")
    assert (gone.status, gone.code) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/queues/bad/registrations/g", {"vital": True, "partitions": [7]}, 400, "has no partition 7"),
        ("/queues/bad/registrations/%2F%2Ftmp%2Fnone", {"vital": True}, 404, "there is no consumer //tmp/none"),
        ("/queues/bad/registrations/mars%3A%2F%2Ftmp%2Fc", {"vital": True}, 409, "on another cluster"),
        ("/queues/none/registrations/g", {"vital": True}, 404, "none"),
        ("/queues/bad/registrations/g", {}, 400, "vital"),
        ("/queues/bad/trimming", {"enable": True, "retained_lifetime_ms": 1500}, 400, "whole seconds"),
        ("/queues/bad/trimming", {"enable": True, "rows": 1}, 400, "rows"),
    ],
)
def test_what_cannot_be_registered_is_told(api: ApiClient, path: str, body: dict[str, object], status: int, words: str) -> None:
    if api.call("GET", "/topics/bad").status == 404:
        fill(api, "bad", 0)
    answer = api.call("PUT", path, body)
    assert answer.status == status
    assert words in answer.json["error"]["message"]
    assert api.get("/queues/bad")["registrations"] == []
