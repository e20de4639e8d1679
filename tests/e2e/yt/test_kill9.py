"""kill -9 between commands: registrations, offsets, sessions, trims, mount states and rows are as they were."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.e2e.yt.yt_clusters import wait_until, yt_clusters

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
QUEUE, CONSUMER, PRODUCER = "//tmp/queue", "//tmp/consumer", "//tmp/producer"
SCHEMA = [{"name": "data", "type": "string"}, {"name": "$cumulative_data_weight", "type": "int64"}]


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [{"data": str(number), "$sequence_number": number} for number in numbers]


def test_a_mutation_that_is_sent_again_after_a_restart_is_answered_again(tmp_path: Path) -> None:
    with yt_clusters(tmp_path, "pythia") as clusters:

        def create(mutation_id: str) -> tuple[int, bytes]:
            url = f"http://127.0.0.1:{clusters.ports['pythia']}/api/v4/create"
            body = f'{{type=map_node;path="//tmp/once";mutation_id="{mutation_id}"}}'.encode()
            request = Request(url, body, {"Content-Type": "application/x-yt-yson-text"}, method="POST")
            try:
                with urlopen(request, timeout=30) as answer:
                    return answer.status, answer.read()
            except HTTPError as error:
                with error:
                    return error.code, b""

        first = create("1-2-3-4")
        assert first[0] == 200
        time.sleep(0.5)  # it is stored a moment after it was sent
        clusters.kill("pythia")
        assert create("1-2-3-4") == first
        assert create("1-2-3-5")[0] == 400


def test_nothing_is_lost_between_commands(tmp_path: Path) -> None:
    with yt_clusters(tmp_path, "pythia") as clusters:

        def killed() -> Any:
            clusters.kill("pythia")
            return clusters.client("pythia")

        clusters.client("pythia").create("table", QUEUE, attributes={"dynamic": True, "schema": SCHEMA})
        client = killed()
        client.mount_table(QUEUE)
        client.create("queue_consumer", CONSUMER)
        client.create("queue_producer", PRODUCER)
        client.set(f"{QUEUE}/@auto_trim_config", {"enable": True})
        client = killed()
        assert client.get(f"{QUEUE}/@tablet_state") == "mounted"
        client.register_queue_consumer(QUEUE, CONSUMER, vital=True)
        epoch = client.create_queue_producer_session(PRODUCER, QUEUE, "s")["epoch"]
        client.push_queue_producer(PRODUCER, QUEUE, "s", epoch, rows(1, 2, 3))
        client = killed()
        pushed = client.push_queue_producer(PRODUCER, QUEUE, "s", epoch, rows(2, 3, 4))
        assert dict(pushed) == {"last_sequence_number": 4, "skipped_row_count": 2}
        client.advance_consumer(CONSUMER, QUEUE, partition_index=0, old_offset=0, new_offset=2)
        client = killed()
        wait_until(lambda: bool(client.get(f"{QUEUE}/@queue_partitions/0/lower_row_index") == 2))
        client = killed()
        found = list(client.pull_consumer(CONSUMER, QUEUE, offset=None, partition_index=0))
        assert [(row["data"], row["$row_index"]) for row in found] == [("3", 2), ("4", 3)]
        assert found[-1]["$cumulative_data_weight"] == 4 * (1 + 1 + 8)
        assert client.get(f"{QUEUE}/@auto_trim_config") == {"enable": True}
        transaction = client.start_transaction(type="tablet", timeout=10_000)
        with client.Transaction(transaction_id=transaction):
            client.insert_rows(QUEUE, [{"data": "lost"}])
        client = killed()
        assert [row["data"] for row in client.pull_queue(QUEUE, offset=0, partition_index=0)] == ["3", "4"]
        client.remove(QUEUE)
        client = killed()
        assert not client.exists(QUEUE)
        assert client.list("//tmp") == ["consumer", "producer"]
