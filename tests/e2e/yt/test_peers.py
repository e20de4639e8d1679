"""Two clusters when one of them is away: commands fail and can be repeated, and nothing is trimmed that the other may need."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from yt.wrapper.errors import YtError

from tests.e2e.yt.yt_clusters import YtFailedError, wait_until, yt_clusters

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
QUEUE, CONSUMER = "//tmp/queue", "//tmp/consumer"
REMOTE_QUEUE, REMOTE_CONSUMER = f"<cluster=pythia>{QUEUE}", f"<cluster=hume>{CONSUMER}"
SCHEMA = [
    {"name": "data", "type": "string"},
    {"name": "$timestamp", "type": "uint64"},
    {"name": "$cumulative_data_weight", "type": "int64"},
]


def test_a_cluster_that_is_away_is_waited_for(tmp_path: Path) -> None:
    with yt_clusters(tmp_path) as clusters:
        pythia, hume = clusters.client("pythia"), clusters.client("hume")

        def lower() -> int:
            return int(pythia.get(f"{QUEUE}/@queue_partitions/0/lower_row_index"))

        def alert() -> bool:
            return "alerts" in pythia.get(f"{QUEUE}/@queue_status")

        def registrations(client: Any, **options: str) -> int:
            return len(client.list_queue_consumer_registrations(**options))

        pythia.create("table", QUEUE, attributes={"dynamic": True, "schema": SCHEMA})
        pythia.mount_table(QUEUE)
        pythia.insert_rows(QUEUE, [{"data": each} for each in "abcdef"])
        hume.create("queue_consumer", CONSUMER)

        # Registered from the consumer's side, seen from both, also by asking one about the other.
        hume.register_queue_consumer(REMOTE_QUEUE, CONSUMER, vital=True)
        assert registrations(pythia, queue_path=QUEUE) == registrations(hume, consumer_path=CONSUMER) == 1
        assert registrations(hume, queue_path=REMOTE_QUEUE) == registrations(pythia, consumer_path=REMOTE_CONSUMER) == 1

        hume.advance_consumer(CONSUMER, REMOTE_QUEUE, partition_index=0, old_offset=0, new_offset=2)
        [partition] = hume.get(f"{CONSUMER}/@queue_consumer_partitions")[f"pythia:{QUEUE}"]
        assert (partition["unread_row_count"], partition["unread_data_weight"]) == (4, 4 * 18)
        assert partition["processing_lag"] > 0
        pythia.set(f"{QUEUE}/@auto_trim_config", {"enable": True})
        wait_until(lambda: lower() == 2)

        # While hume does not answer, its consumer needs everything.
        clusters.nodes["hume"].process.send_signal(signal.SIGSTOP)
        try:
            wait_until(alert)
        finally:
            clusters.nodes["hume"].process.send_signal(signal.SIGCONT)
        wait_until(lambda: not alert())
        hume.advance_consumer(CONSUMER, REMOTE_QUEUE, partition_index=0, old_offset=2, new_offset=4)
        wait_until(lambda: lower() == 4)

        clusters.nodes["hume"].kill()
        wait_until(alert)
        with pytest.raises(YtError, match="does not answer"):
            pythia.unregister_queue_consumer(QUEUE, REMOTE_CONSUMER)
        assert registrations(pythia, queue_path=QUEUE) == 1
        # Nor is anything kept of a registration that the other cluster did not take; what was there before stays.
        other = "<cluster=hume>//tmp/other"
        with pytest.raises(YtError, match="does not answer"):
            pythia.register_queue_consumer(QUEUE, other, vital=True)
        with pytest.raises(YtError, match="does not answer"):
            pythia.register_queue_consumer(QUEUE, REMOTE_CONSUMER, vital=False)
        [kept] = pythia.list_queue_consumer_registrations(queue_path=QUEUE)
        assert (str(kept["consumer_path"]), kept["vital"]) == (CONSUMER, True)
        clusters.kill("hume")
        assert registrations(clusters.client("hume"), consumer_path=CONSUMER) == 1
        pythia.unregister_queue_consumer(QUEUE, REMOTE_CONSUMER)
        assert registrations(pythia, queue_path=QUEUE) == registrations(clusters.client("hume"), consumer_path=CONSUMER) == 0


def test_a_registration_that_the_other_cluster_refuses_is_on_neither(tmp_path: Path) -> None:
    with yt_clusters(tmp_path) as clusters:
        pythia, hume = clusters.client("pythia"), clusters.client("hume")
        pythia.create("table", QUEUE, attributes={"dynamic": True, "schema": SCHEMA})
        for client, queue, consumer in ((pythia, QUEUE, "<cluster=hume>//tmp/none"), (hume, REMOTE_QUEUE, "//tmp/none")):
            with pytest.raises(YtError, match="no node //tmp/none"):
                client.register_queue_consumer(queue, consumer, vital=True)
            assert pythia.list_queue_consumer_registrations() == hume.list_queue_consumer_registrations() == []
        for consumer in ("<cluster=mars>//tmp/none", "<cluster=mars>//groups/none"):
            with pytest.raises(YtError, match="'mars' is not known"):
                pythia.register_queue_consumer(QUEUE, consumer, vital=True)
        assert pythia.list_queue_consumer_registrations() == []


def test_a_registration_of_a_cluster_that_is_gone_is_ended(tmp_path: Path) -> None:
    with yt_clusters(tmp_path) as clusters:
        pythia, hume = clusters.client("pythia"), clusters.client("hume")
        pythia.create("table", QUEUE, attributes={"dynamic": True, "schema": SCHEMA})
        pythia.mount_table(QUEUE)
        for name in (CONSUMER, "//tmp/second"):
            hume.create("queue_consumer", name)
            hume.register_queue_consumer(REMOTE_QUEUE, name, vital=True)
        clusters.nodes["hume"].kill()
        parameters = f'{{queue_path="{QUEUE}";consumer_path=<cluster=hume>"{CONSUMER}"}}'
        with pytest.raises(YtFailedError, match="penstock_force"):
            clusters.yt("--proxy", "pythia", "execute", "unregister_queue_consumer", parameters)
        forced = parameters[:-1] + ";penstock_force=%true}"
        clusters.yt("--proxy", "pythia", "execute", "unregister_queue_consumer", forced)
        assert len(pythia.list_queue_consumer_registrations(queue_path=QUEUE)) == 1

        # Without --peer-cluster, pythia does not know it any more, and waits for no answer.
        clusters.forget("pythia", "hume")
        clusters.yt("--proxy", "pythia", "unregister-queue-consumer", QUEUE, "<cluster=hume>//tmp/second")
        assert pythia.list_queue_consumer_registrations(queue_path=QUEUE) == []
