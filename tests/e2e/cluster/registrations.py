"""Schemas that are registered through all nodes of a cluster at the same time, while nodes come and go."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.cluster.running_cluster import RunningCluster, until

SUBJECTS = 3
TOPIC = "checked"
CHECKED_PARTITIONS = 6


def call(cluster: RunningCluster, number: int, method: str, path: str, body: Any = None) -> Any:
    """What the registry of a node answers. OSError if it does not, or with an error."""
    url = f"http://{cluster.host(number)}:{cluster.http_port(number)}/schema-registry{path}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.loads(response.read())


def _schema(number: int) -> str:
    return json.dumps({"type": "fixed", "name": "F", "size": number + 1})


class Registrar:
    """Registers one schema after another, each through all nodes at once. A call that fails is made again, on any node."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._cluster = cluster
        self.ids: dict[int, set[int]] = {}
        self._ending = threading.Event()
        until("the registry answers", lambda: self._try(next(iter(cluster.nodes)), "PUT", "/config", {"compatibility": "NONE"}))
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in cluster.nodes]
        for thread in self._threads:
            thread.start()

    def go_on(self) -> None:
        """Wait until some more schemas are registered."""
        before = len(self.ids)
        until("no more schemas are registered", lambda: len(self.ids) > before + 2)

    def end(self) -> None:
        """Stop, and check that each schema has one id, which no other has, on all nodes that run."""
        self._ending.set()
        for thread in self._threads:
            thread.join()
        assert all(len(ids) == 1 for ids in self.ids.values()), "two ids for one schema"
        told = {number: next(iter(ids)) for number, ids in self.ids.items()}
        assert len(set(told.values())) == len(told), "one id for two schemas"
        for node in self._cluster.nodes:
            for number in (0, len(told) - 1):
                answer = call(self._cluster, node, "GET", f"/schemas/ids/{told[number]}")
                assert json.loads(answer["schema"]) == json.loads(_schema(number))
            versions = [call(self._cluster, node, "GET", f"/subjects/s-{subject}/versions") for subject in range(SUBJECTS)]
            assert sum(map(len, versions)) == len(told)

    def _run(self, first_node: int) -> None:
        for number in range(1_000_000):
            if self._ending.is_set() and number >= len(self.ids):
                return
            nodes = until("no node runs", lambda: sorted(self._cluster.nodes, key=lambda node: node != first_node))
            path, attempt = f"/subjects/s-{number % SUBJECTS}/versions", 0
            while (answer := self._try(nodes[attempt % len(nodes)], "POST", path, {"schema": _schema(number)})) is None:
                attempt += 1
            self.ids.setdefault(number, set()).add(answer["id"])

    def _try(self, node: int, method: str, path: str, body: Any) -> Any:
        try:
            return call(self._cluster, node, method, path, body)
        except (OSError, ValueError, KeyError):  # it is away, or was never started
            return None


def check_validation(cluster: RunningCluster) -> None:
    """A schema that was registered through one node counts at once for partitions of all nodes, and one that was not for none;
    with validation=full each node also decodes what it takes."""
    bootstrap: dict[str, str | int | float] = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
    admin = AdminClient(bootstrap)
    producer = Producer({**bootstrap, "acks": "all"})
    for validation in ("id", "full"):
        topic = f"{TOPIC}-{validation}"
        config = {"penstock.schema.validation": validation}
        admin.create_topics([NewTopic(topic, CHECKED_PARTITIONS, config=config)])[topic].result(30)
        for number in sorted(cluster.nodes):
            schema = json.dumps({"type": "enum", "name": f"Of{number}", "symbols": ["A"]})
            call(cluster, number, "PUT", f"/config/{topic}-value", {"compatibility": "NONE"})
            schema_id = call(cluster, number, "POST", f"/subjects/{topic}-value/versions", {"schema": schema})["id"]
            for partition in range(CHECKED_PARTITIONS):
                named = [_is_taken(producer, topic, partition, name) for name in (schema_id, 9_999_999)]
                assert named == [True, False], (validation, number, partition)
                is_taken = _is_taken(producer, topic, partition, schema_id, b"\x02")  # the second symbol of one
                assert is_taken == (validation == "id"), (validation, number, partition)


def _is_taken(producer: Producer, topic: str, partition: int, schema_id: int, payload: bytes = b"\0") -> bool:
    """Whether a message that names a schema is stored."""
    outcomes: list[bool] = []
    value = b"\0" + schema_id.to_bytes(4, "big") + payload
    producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: outcomes.append(error is None))
    producer.flush(30)
    return outcomes == [True]
