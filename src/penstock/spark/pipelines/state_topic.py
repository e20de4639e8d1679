"""Status reports of pipelines in the compacted topic `__penstock_pipelines`, with the pipeline's name as key."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from penstock.core.errors import PenstockError
from penstock.kafka.client import EARLIEST, LATEST, BlockingClient, ClientOptions, TopicPartition
from penstock.spark.options import Position, ReadOptions, Subscription
from penstock.spark.pipelines.topic_making import make_topic
from penstock.spark.ranges import OffsetRange
from penstock.spark.write_options import AT_LEAST_ONCE, WriteOptions

TOPIC: Final = "__penstock_pipelines"
SETTINGS: Final = {"cleanup.policy": "compact"}
EVERY_S: Final = 2.0
BEAT_S: Final = 5.0
ALIVE_MS: Final = 15_000
TIMEOUT_S: Final = 5.0
RUNNING: Final = frozenset({"starting", "running", "waiting", "restarting"})

_log = logging.getLogger(__name__)


class StateReport:
    """Publishes the status of a pipeline. A report that fails is logged and does not stop the pipeline."""

    def __init__(self, client: ClientOptions, state: Mapping[str, Any]) -> None:
        short = replace(client, api_timeout_s=TIMEOUT_S, request_timeout_s=TIMEOUT_S)
        self._options = WriteOptions(short, TOPIC, AT_LEAST_ONCE, delivery_timeout_s=TIMEOUT_S)
        self._told_at = float("-inf")
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._beats: threading.Thread | None = None
        self.state: dict[str, Any] = dict(state)

    def __enter__(self) -> StateReport:
        self._beats = threading.Thread(target=self._beat, name="pipeline state", daemon=True)
        self._beats.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        assert self._beats is not None
        self._beats.join()

    def tell(self, **changes: Any) -> None:
        """Update the status. A change of state is sent at once, figures at intervals."""
        with self._lock:
            is_new_state = changes.get("state", self.state.get("state")) != self.state.get("state")
            self.state.update(changes)
            if is_new_state or time.monotonic() - self._told_at >= EVERY_S:
                self._send()

    def _beat(self) -> None:
        """Send heartbeats: a batch may take minutes, and so may the start of Spark."""
        while not self._over.wait(BEAT_S):
            with self._lock:
                if time.monotonic() - self._told_at >= BEAT_S:
                    self._send()

    def _send(self) -> None:
        from penstock.spark.task_transaction import TaskTransaction

        self.state["updated_ms"] = int(time.time() * 1000)
        self._told_at = time.monotonic()
        rows = pa.RecordBatch.from_pydict(
            {"key": [self.state["name"].encode()], "value": [json.dumps(self.state, ensure_ascii=False).encode()]},
            schema=pa.schema([("key", pa.binary()), ("value", pa.binary())]),
        )
        try:
            with closing(BlockingClient(self._options.client)) as client:
                make_topic(client, TOPIC, 1, SETTINGS)
                sending = TaskTransaction(client, self._options, None, 0)
                sending.send(TOPIC, rows)
                sending.finish()
        except PenstockError as error:
            _log.warning("the state of pipeline %s could not be reported: %s", self.state["name"], error)


def read_states(client: BlockingClient) -> dict[str, dict[str, Any]]:
    """The last report of every pipeline, by name, without what is no report."""
    reports = {}
    for name, value in read_last_values(client, TOPIC).items():
        with suppress(ValueError):
            report = json.loads(value)
            if isinstance(report, dict):
                reports[name] = report
    return reports


def read_last_values(client: BlockingClient, topic: str, prefix: str = "") -> dict[str, bytes]:
    """The last value of every key of a topic with one partition, without tombstones."""
    from penstock.spark.columns import Layout
    from penstock.spark.range_read import read_range

    topics = client.known_topics([topic])
    if topic not in topics:
        return {}
    topic_partition = TopicPartition(topic, 0)
    start, stop = (
        client.offsets({topic_partition: end}, committed=True, topics=topics)[topic_partition] for end in (EARLIEST, LATEST)
    )
    options = ReadOptions(client.options, Subscription((topic,)), Position(), Position(end=LATEST), is_committed=True)
    layout = Layout(pa.schema([("key", pa.binary()), ("value", pa.binary())]))
    last: dict[str, bytes] = {}
    if stop <= start:
        return last
    for batch in read_range(
        options, layout, OffsetRange(topic_partition, start, stop, topics[topic].leaders[0], topics[topic].id)
    ):
        for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            name = (key or b"").decode("utf-8", "replace")
            if value is None:
                last.pop(name, None)
            elif name.startswith(prefix):
                last[name] = value
    return last


def is_alive(state: Mapping[str, Any], now_ms: int) -> bool:
    """Whether a pipeline has recently reported that it is running."""
    return state.get("state") in RUNNING and now_ms - int(state.get("updated_ms", 0)) < ALIVE_MS
