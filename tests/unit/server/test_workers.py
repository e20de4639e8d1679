"""Workers of one machine: what each is told, and when it is started again."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from random import Random

import pytest

from penstock.server import BadSettingError, DirectoryMismatchError, NodeConfig, load_config
from penstock.server.data_directory import SECRET_NAME, DataDirectory
from penstock.server.supervisor.restart_backoff import PAUSE_S_MAX, STEADY_S, RestartBackoff
from penstock.server.supervisor.supervisor import Supervisor, WorkerFailedError
from penstock.server.supervisor.worker_config import with_free_ports, worker_configs
from penstock.server.supervisor.worker_order import WorkerOrder


def test_the_first_worker_has_the_directory_and_the_well_known_ports() -> None:
    config = NodeConfig(workers=3, data_dir=Path("/data"), yt_port=8000, kafka_tls_port=9192, node_id=7, cache_bytes=300)
    first, second, third = worker_configs(config)
    assert (first.data_dir, first.kafka_port, first.http_port, first.yt_port, first.node_id) == (
        Path("/data"),
        9092,
        8080,
        8000,
        7,
    )
    assert (second.data_dir, third.data_dir) == (Path("/data/workers/2"), Path("/data/workers/3"))
    ports = [(worker.kafka_port, worker.kafka_tls_port, worker.http_port, worker.yt_port) for worker in (second, third)]
    assert ports == [(9093, 9193, 8081, None), (9094, 9194, 8082, None)]
    assert {worker.cache_bytes for worker in (first, second, third)} == {100}


def test_disks_are_one_for_each_worker() -> None:
    disks = (Path("/a"), Path("/b"))
    assert [worker.disks for worker in worker_configs(NodeConfig(workers=2, disks=disks))] == [(disks[0],), (disks[1],)]
    with pytest.raises(BadSettingError, match="name one for each"):
        worker_configs(NodeConfig(workers=3, disks=disks))


def test_ports_that_meet_are_refused() -> None:
    with pytest.raises(BadSettingError, match="9093 is kafka_tls_port of worker 1 and kafka_port of worker 2"):
        worker_configs(NodeConfig(workers=2, kafka_tls_port=9093))
    with pytest.raises(BadSettingError, match="choose a lower kafka_port"):
        worker_configs(NodeConfig(workers=2, kafka_port=65535))


def test_ports_that_are_picked_are_picked_once() -> None:
    configs = with_free_ports(worker_configs(NodeConfig(workers=2, kafka_port=0, http_port=0)), lambda count: range(1, count + 1))
    assert [(worker.kafka_port, worker.http_port) for worker in configs] == [(1, 2), (3, 4)]


@pytest.mark.parametrize(
    ("settings", "message"), [({"erasure": "mirror-3"}, "workers store one copy"), ({"etcd": "http://a:1"}, "start more nodes")]
)
def test_settings_that_workers_exclude(settings: dict[str, str], message: str) -> None:
    with pytest.raises(BadSettingError, match=message):
        worker_configs(load_config({"workers": "2", **settings}, {}))


def test_the_secret_that_workers_share_is_there_before_any_of_them_starts(tmp_path: Path) -> None:
    secret = tmp_path / "data" / SECRET_NAME
    program = (sys.executable, "-c", f"import os, sys; sys.exit(40 if os.path.exists({str(secret)!r}) else 41)")
    config = NodeConfig(workers=2, data_dir=tmp_path / "data", kafka_port=0, http_port=None)
    with pytest.raises(WorkerFailedError, match="has ended with 40"):
        asyncio.run(Supervisor.start(config, program))


def test_a_worker_reads_its_order_as_it_was_written() -> None:
    config = NodeConfig(disks=(Path("/a"),), peer_clusters={"other": "http://b:1"}, give_up_tablets=(1,), admin_password="secret")
    order = WorkerOrder(worker=2, node_id=8, config=config, lock=5, data_dir="/data", groups={7: 0, 8: 1})
    assert WorkerOrder.decode(order.encode()) == order
    assert order.group == 1


def test_a_worker_that_fails_again_and_again_waits_longer_and_longer() -> None:
    backoff = RestartBackoff()
    assert [backoff.next_pause_s(0.1) for _ in range(4)] == [0.0, 0.5, 1.0, 2.0]
    assert [backoff.next_pause_s(0.1) for _ in range(10)][-1] == PAUSE_S_MAX
    assert backoff.next_pause_s(STEADY_S) == 0.0


def test_the_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    config = NodeConfig(data_dir=tmp_path / "data")
    DataDirectory.open(config, Random(1), cluster_id="ours").close()
    with pytest.raises(DirectoryMismatchError, match="is of cluster ours, not theirs"):
        DataDirectory.open(config, Random(1), cluster_id="theirs")
