"""Producers and a consumer at work while the node is killed again and again: every row goes all the way, once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from yt.packages.requests.exceptions import RequestException
from yt.wrapper.errors import YtError

from tests.e2e.yt.yt_clusters import YtClusters, yt_clusters

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
SOURCE, RESULT, CONSUMER, PRODUCER = "//tmp/source", "//tmp/result", "//tmp/consumer", "//tmp/producer"
SCHEMA = [{"name": "data", "type": "string"}, {"name": "$cumulative_data_weight", "type": "int64"}]
WRITERS, PUSHES, ROWS = 3, 60, 4
KILLS = 4
EXPECTED = WRITERS * PUSHES * ROWS
END_S = 90.0


class Fire:
    """What threads share: the clusters, and what went wrong for good."""

    def __init__(self, clusters: YtClusters) -> None:
        self.clusters = clusters
        self.ends_at = time.monotonic() + END_S
        self.failures: list[BaseException] = []

    def insistently(self, call: Callable[[], Any]) -> Any:
        """Call until it succeeds."""
        while True:
            try:
                return call()
            except (YtError, RequestException, OSError):
                if time.monotonic() > self.ends_at:
                    raise
                time.sleep(0.1)

    def run(self, work: Callable[[], None]) -> threading.Thread:
        """Work in a thread."""

        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                self.failures.append(error)
                raise

        thread = threading.Thread(target=guarded)
        thread.start()
        return thread


def write(fire: Fire, number: int) -> None:
    client = fire.clusters.client("pythia")
    session = (PRODUCER, SOURCE, f"writer-{number}")
    epoch = fire.insistently(lambda: client.create_queue_producer_session(*session))["epoch"]
    for push in range(PUSHES):
        first = push * ROWS
        rows = [{"data": f"{number}-{first + at}", "$sequence_number": first + at, "$tablet_index": 0} for at in range(ROWS)]
        fire.insistently(partial(client.push_queue_producer, *session, epoch, rows))
        time.sleep(0.05)


def copy_once(client: Any, offset: int) -> int:
    """One step of the consumer: rows from an offset on into the result, together with its own offset."""
    rows = list(client.pull_consumer(CONSUMER, SOURCE, offset=offset, partition_index=0, max_row_count=20))
    if not rows:
        time.sleep(0.05)
        return offset
    after = int(rows[-1]["$row_index"]) + 1
    with client.Transaction(type="tablet"):
        client.insert_rows(RESULT, [{"data": row["data"]} for row in rows])
        client.advance_consumer(CONSUMER, SOURCE, partition_index=0, old_offset=offset, new_offset=after)
    return after


def stored_offset(client: Any) -> int:
    rows = list(client.select_rows(f"offset from [{CONSUMER}]"))
    return int(rows[0]["offset"]) if rows else 0


def copy_all(fire: Fire) -> None:
    client = fire.clusters.client("pythia")
    copied = 0
    while copied < EXPECTED:
        # After any trouble, only what is stored says how far the consumer is.
        copied = fire.insistently(lambda: copy_once(client, stored_offset(client)))


def test_every_row_goes_all_the_way_once(tmp_path: Path) -> None:
    with yt_clusters(tmp_path, "pythia") as clusters:
        client = clusters.client("pythia")
        for path in (SOURCE, RESULT):
            client.create("table", path, attributes={"dynamic": True, "schema": SCHEMA})
            client.mount_table(path, sync=True)
        client.create("queue_consumer", CONSUMER)
        client.create("queue_producer", PRODUCER)
        client.register_queue_consumer(SOURCE, CONSUMER, vital=True)
        client.set(f"{SOURCE}/@auto_trim_config", {"enable": True, "retained_rows": 10})
        fire = Fire(clusters)
        threads = [fire.run(partial(write, fire, number)) for number in range(WRITERS)]
        threads.append(fire.run(lambda: copy_all(fire)))
        for _ in range(KILLS):
            time.sleep(1.0)
            clusters.kill("pythia")
        for thread in threads:
            thread.join(END_S)
        assert not fire.failures
        assert not any(thread.is_alive() for thread in threads)
        found: list[dict[str, Any]] = []
        while rows := list(clusters.client("pythia").pull_queue(RESULT, offset=_after(found), partition_index=0)):
            found += rows
        for number in range(WRITERS):
            own = [str(row["data"]) for row in found if str(row["data"]).startswith(f"{number}-")]
            assert own == [f"{number}-{at}" for at in range(PUSHES * ROWS)]
        weights = [int(row["$cumulative_data_weight"]) for row in found]
        assert weights == sorted(set(weights))


def _after(rows: list[dict[str, Any]]) -> int:
    return int(rows[-1]["$row_index"]) + 1 if rows else 0
