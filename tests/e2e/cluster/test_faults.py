"""Three nodes on machines of their own under load of a stock client, and everything that befalls machines and networks: kills,
processes that stand still, cuts both ways and one way, etcd away, a disk that is lost. Nothing acknowledged is lost or doubled.

In CI each fault comes once; `make soak` does `CLUSTER_ROUNDS` of each (20), and writes how long the client had to wait for an
acknowledgement to `build/cluster-pauses.md`.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median

import pytest

from tests.e2e.cluster.machines import Machines, running_machines
from tests.e2e.cluster.numbers import Writer, check_numbers
from tests.e2e.cluster.running_cluster import RunningCluster, running_cluster, until

log = logging.getLogger(__name__)

PAUSES = Path("build/cluster-pauses.md")
ETCD = 4  # its machine
REQUEST_TIMEOUT_MS = 3_000  # of the client; the default of 30 s would be most of every pause in which no FIN comes


class Faults:
    """What can be done to a cluster, by name; each is undone when it returns, and the cluster is whole again."""

    def __init__(self, cluster: RunningCluster, machines: Machines, writer: Writer, length_s: float) -> None:
        self._cluster = cluster
        self._machines = machines
        self._writer = writer
        self._length_s = length_s
        self.all: dict[str, Callable[[], None]] = {
            "the active node is killed": self.kill_active,
            "another node is killed": self.kill_standby,
            "the active node stands still": self.freeze_active,
            "another node stands still": self.freeze_standby,
            "the active node is cut off from all": self.isolate_active,
            "the active node and another are cut off from each other": self.cut_pair,
            "another node cannot send to the active one": self.cut_one_way,
            "the active node is cut off from etcd": self.cut_from_etcd,
            "etcd is away": self.stop_etcd,
            "another node has lost its disk": self.lose_disk,
            "the others stand still, and the active node is killed": self.kill_alone,
        }

    def kill_active(self) -> None:
        self._restart_killed(self._cluster.active())

    def kill_standby(self) -> None:
        self._restart_killed(self._standby())

    def freeze_active(self) -> None:
        self._freeze(self._cluster.active())

    def freeze_standby(self) -> None:
        self._freeze(self._standby())

    def isolate_active(self) -> None:
        self._machines.isolate(self._cluster.active())
        self._last()

    def cut_pair(self) -> None:
        self._machines.cut(self._cluster.active(), self._standby())
        self._last()

    def cut_one_way(self) -> None:
        self._machines.cut_one_way(self._standby(), self._cluster.active())
        self._last()

    def cut_from_etcd(self) -> None:
        self._machines.cut(self._cluster.active(), ETCD)
        self._last()

    def stop_etcd(self) -> None:
        for member in self._cluster.etcd.members:
            member.kill()
        time.sleep(self._length_s)
        self._cluster.etcd.start()

    def lose_disk(self) -> None:
        number = self._standby()
        self._cluster.kill(number)
        shutil.rmtree(self._cluster.directory / f"n{number}")
        self._writer.go_on()
        until("it is away", lambda: self._state(number) == "away")
        self._cluster.start(number, "--replaces-node", "true")

    def kill_alone(self) -> None:
        """What it could not store when it was killed may be stored all the same, and must not be there twice then."""
        active = self._cluster.active()
        others = [self._cluster.nodes[number].process for number in (1, 2, 3) if number != active]
        for process in others:
            process.send_signal(signal.SIGSTOP)
        time.sleep(self._length_s)
        self._cluster.kill(active)
        for process in others:
            process.send_signal(signal.SIGCONT)
        self._cluster.start(active)

    def mend(self) -> None:
        """Wait until every node could be done without."""
        self._cluster.active()
        for number in (1, 2, 3):
            self._cluster.wait_ready(number)
        self._writer.go_on(60.0)

    def _standby(self) -> int:
        active = self._cluster.active()
        return next(number for number in (1, 2, 3) if number != active)

    def _state(self, number: int) -> str:
        shown = json.loads(self._cluster.ok("node", "list", "-o", "json"))
        return str(next(node["state"] for node in shown if node["name"] == f"n{number}"))

    def _restart_killed(self, number: int) -> None:
        self._cluster.kill(number)
        self._writer.go_on()
        self._cluster.start(number)

    def _freeze(self, number: int) -> None:
        process = self._cluster.nodes[number].process
        process.send_signal(signal.SIGSTOP)
        time.sleep(self._length_s)
        process.send_signal(signal.SIGCONT)

    def _last(self) -> None:
        """Let a cut last for a while."""
        time.sleep(self._length_s)
        self._machines.join()


def run_rounds(directory: Path, rounds: int, length_s: float, chosen: Callable[[str], bool]) -> dict[str, list[float]]:
    """So many rounds of faults in random order. Returns the longest time without an acknowledgement, by fault."""
    pauses: dict[str, list[float]] = defaultdict(list)
    random = Random(rounds)
    with running_machines(4) as machines, running_cluster(directory, machines=machines) as cluster:
        writer = Writer(cluster.bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)
        faults = Faults(cluster, machines, writer, length_s)
        faults.mend()
        for _ in range(rounds):
            names = [name for name in faults.all if chosen(name)]
            random.shuffle(names)
            for name in names:
                writer.longest_pause()
                faults.all[name]()
                faults.mend()
                pauses[name].append(writer.longest_pause())
                log.info("%6.2f s: %s; %d acknowledged", pauses[name][-1], name, len(writer.acknowledged))
        writer.end()
        cluster.active()
        check_numbers(writer, cluster.bootstrap)
        for number in (1, 2, 3):
            assert "Traceback" not in cluster.log(number).read_text(encoding="utf-8")
    return pauses


def test_cuts_and_processes_that_stand_still_lose_nothing(tmp_path: Path) -> None:
    pauses = run_rounds(tmp_path, 1, 2.0, lambda name: "killed" not in name)  # kills have a test of their own
    assert len(pauses) == 8


@pytest.mark.soak
@pytest.mark.timeout(3 * 3600)
def test_rounds_of_every_fault_lose_nothing(tmp_path: Path) -> None:
    rounds = int(os.environ.get("CLUSTER_ROUNDS", "20"))
    pauses = run_rounds(tmp_path, rounds, 10.0, lambda _: True)
    lines = ["| fault | rounds | pause, p50 | longest |", "|---|---:|---:|---:|"]
    lines += [f"| {name} | {len(found)} | {median(found):.1f} s | {max(found):.1f} s |" for name, found in pauses.items()]
    PAUSES.parent.mkdir(exist_ok=True)
    PAUSES.write_text("\n".join(lines) + "\n", encoding="utf-8")
