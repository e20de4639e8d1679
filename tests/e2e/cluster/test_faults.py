"""Three nodes on machines of their own under load of a stock client, and everything that befalls machines and networks: kills,
processes that stand still, cuts both ways and one way, etcd without its leader or away, disks that are lost, full or slow.
Nothing acknowledged is lost or doubled.

In CI there are two rounds, with most faults in one of them. `make soak` does `CLUSTER_ROUNDS` with all of them (20), from
`CLUSTER_FIRST_ROUND` (0) on: the number of a round decides its order, so that a long run can be done in pieces. How long the
client had to wait for an acknowledgement is added to `build/cluster-rounds.jsonl`, round by round, and summed up over all rounds
there in `build/cluster-pauses.md`.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from statistics import median

import pytest

from tests.e2e.cluster.machines import Machines, running_machines
from tests.e2e.cluster.numbers import Writer, check_numbers, leaders_told_by, write_more
from tests.e2e.cluster.running_cluster import RunningCluster, running_cluster, until
from tests.e2e.cluster.small_disks import SmallDisk, small_disks

log = logging.getLogger(__name__)

PAUSES = Path("build/cluster-pauses.md")
ROUNDS = Path("build/cluster-rounds.jsonl")
ETCD = 4  # its machine
MINUTE_S = 60.0
REFILL_S = 600.0  # a refill leaves most of the time to others, and machines of tests are busy
ROUNDS_WITHOUT_LONG = 5  # of so many rounds, the last has the faults of a minute
REQUEST_TIMEOUT_MS = 3_000  # of the client; the default of 30 s would be most of every pause in which no FIN comes

Pauses = dict[str, float]


class Faults:
    """What can be done to a cluster, by name; each is undone when it returns, and the cluster is whole again."""

    def __init__(
        self, cluster: RunningCluster, machines: Machines, disks: list[SmallDisk], writer: Writer, length_s: float
    ) -> None:
        self._cluster = cluster
        self._machines = machines
        self._disks = disks
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
            "the leader of etcd is killed": self.kill_etcd_leader,
            "etcd is away": self.stop_etcd,
            "another node has lost its disk": self.lose_disk,
            "a node restarts while another is refilled": self.restart_during_refill,
            "the others stand still, and the active node is killed": self.kill_alone,
        }
        if disks:
            self.all |= {
                "the disk of the active node is full": self.fill_active,
                "the disk of another node is full": self.fill_standby,
                "the disk of the active node is 100 times slower": self.slow_active,
                "the disk of another node is 100 times slower": self.slow_standby,
            }
        self.of_soak: dict[str, Callable[[], None]] = {
            "the active node cannot send to another": self.cut_one_way_back,
            "the active node hears nothing from etcd": self.cut_one_way_from_etcd,
            "the active node has lost its disk": self.lose_active_disk,
        }
        self.long: dict[str, Callable[[], None]] = {
            "the active node stands still for a minute": lambda: self._freeze(self._cluster.active(), MINUTE_S),
            "another node stands still for a minute": lambda: self._freeze(self._standby(), MINUTE_S),
        }

    def kill_active(self) -> None:
        self._restart_killed(self._cluster.active())

    def kill_standby(self) -> None:
        self._restart_killed(self._standby())

    def freeze_active(self) -> None:
        self._freeze(self._cluster.active(), self._length_s)

    def freeze_standby(self) -> None:
        self._freeze(self._standby(), self._length_s)

    def isolate_active(self) -> None:
        self._machines.isolate(self._cluster.active())
        self._last()

    def cut_pair(self) -> None:
        self._machines.cut(self._cluster.active(), self._standby())
        self._last()

    def cut_one_way(self) -> None:
        self._machines.cut_one_way(self._standby(), self._cluster.active())
        self._last()

    def cut_one_way_back(self) -> None:
        self._machines.cut_one_way(self._cluster.active(), self._standby())
        self._last()

    def cut_one_way_from_etcd(self) -> None:
        self._machines.cut_one_way(ETCD, self._cluster.active())
        self._last()

    def cut_from_etcd(self) -> None:
        self._machines.cut(self._cluster.active(), ETCD)
        self._last()

    def stop_etcd(self) -> None:
        for member in self._cluster.etcd.members:
            member.kill()
        time.sleep(self._length_s)
        until("no alert says that etcd is away", self._is_etcd_missed)
        self._cluster.etcd.start()
        until("the alert about etcd stays", lambda: not self._is_etcd_missed())

    def _is_etcd_missed(self) -> bool:
        return 'penstock_alerts{code="etcd_away"' in self._cluster.metrics(self._cluster.active())

    def kill_etcd_leader(self) -> None:
        leader = self._cluster.etcd.leader()
        leader.kill()
        time.sleep(self._length_s)
        self._cluster.etcd.start([leader])

    def fill_active(self) -> None:
        self._fill(self._cluster.active())

    def fill_standby(self) -> None:
        self._fill(self._standby())

    def slow_active(self) -> None:
        self._slow_down(self._cluster.active())

    def slow_standby(self) -> None:
        self._slow_down(self._standby())

    def restart_during_refill(self) -> None:
        """First the third node, then the one that is being refilled. Until either is back, two of three disks are out, and what
        the restarted node led waits."""
        active, refilled = self._cluster.active(), self._standby()
        other = next(number for number in (1, 2, 3) if number not in (active, refilled))
        self._lose_disk(refilled)
        for number in (other, refilled):
            self._cluster.kill(number)
            self._cluster.start(number)

    def lose_disk(self) -> None:
        self._lose_disk(self._standby())

    def lose_active_disk(self) -> None:
        self._lose_disk(self._cluster.active())

    def _lose_disk(self, number: int) -> None:
        self._cluster.kill(number)
        if self._disks:
            self._disks[number - 1].empty()
        else:
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
            self._cluster.wait_ready(number, REFILL_S)
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

    def _freeze(self, number: int, length_s: float) -> None:
        process = self._cluster.nodes[number].process
        process.send_signal(signal.SIGSTOP)
        time.sleep(length_s)
        process.send_signal(signal.SIGCONT)

    def _fill(self, number: int) -> None:
        self._disks[number - 1].fill()
        time.sleep(self._length_s)
        self._writer.go_on()
        self._disks[number - 1].make_room()

    def _slow_down(self, number: int) -> None:
        self._disks[number - 1].slow_down()
        time.sleep(self._length_s)
        self._writer.go_on()
        self._disks[number - 1].speed_up()

    def _last(self) -> None:
        """Let a cut last for a while."""
        time.sleep(self._length_s)
        self._machines.join()


def _checked(cluster: RunningCluster, writer: Writer) -> int:
    """As `check_numbers`; if that fails, the log shows what each node tells, and which partitions can be written to."""
    try:
        return check_numbers(writer, cluster.bootstrap)
    except AssertionError:
        before = {partition: len(told) for partition, told in writer.acknowledged.items()}
        for number in (1, 2, 3):
            log.error("n%d: %s", number, leaders_told_by(f"{cluster.host(number)}:{cluster.kafka_port(number)}"))
        log.error("tablets: %s", cluster.api(cluster.active(), "/tablets"))
        log.error("acknowledged meanwhile: %s", {at: len(told) - before[at] for at, told in writer.acknowledged.items()})
        raise


def run_rounds(
    directory: Path, rounds: Iterable[int], length_s: float, chosen: Callable[[Faults, int], list[str]], more: int
) -> Iterator[tuple[int, Pauses, int]]:
    """Rounds of faults by their numbers, each with those that are chosen for it in an order that its number decides; in each the
    client also writes so many messages of 1 KiB, which a disk is refilled with. Yields the number of each, the longest time
    without an acknowledgement by fault, and how many messages were acknowledged so far."""
    with ExitStack() as stack:
        machines = stack.enter_context(running_machines(4))
        disks = stack.enter_context(small_disks([directory / f"n{number}" for number in (1, 2, 3)]))
        cluster = stack.enter_context(running_cluster(directory, machines=machines, etcd_members=3))
        writer = Writer(cluster.bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)
        faults = Faults(cluster, machines, disks, writer, length_s)
        faults.mend()
        for number in rounds:
            write_more(cluster.bootstrap, more)
            names = chosen(faults, number)
            Random(number).shuffle(names)
            pauses: Pauses = {}
            for name in names:
                writer.longest_pause()
                log.info("%s", name)
                (faults.all | faults.of_soak | faults.long)[name]()
                faults.mend()
                pauses[name] = writer.longest_pause()
                log.info("%6.2f s: %s", pauses[name], name)
            acknowledged = _checked(cluster, writer)
            log.info("round %d: %d messages acknowledged, none lost or doubled", number, acknowledged)
            yield number, pauses, acknowledged
        writer.end()
        cluster.active()
        check_numbers(writer, cluster.bootstrap)
        for node in (1, 2, 3):
            assert "Traceback" not in cluster.log(node).read_text(encoding="utf-8")


def test_two_rounds_of_faults_lose_nothing(tmp_path: Path) -> None:
    late = ("node is killed", "restarts", "disk of another")  # in the second round

    def chosen(faults: Faults, number: int) -> list[str]:
        return [name for name in faults.all if any(words in name for words in late) == bool(number)]

    done = [name for _, pauses, _ in run_rounds(tmp_path, range(2), 2.0, chosen, 0) for name in pauses]
    assert len(done) in (13, 17), "with disks of their own, those are filled and slowed down as well"


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_rounds_of_every_fault_lose_nothing(tmp_path: Path) -> None:
    first = int(os.environ.get("CLUSTER_FIRST_ROUND", "0"))
    count = int(os.environ.get("CLUSTER_ROUNDS", "20"))

    def chosen(faults: Faults, number: int) -> list[str]:
        has_long = number % ROUNDS_WITHOUT_LONG == ROUNDS_WITHOUT_LONG - 1
        return [*faults.all, *faults.of_soak, *(faults.long if has_long else ())]

    ROUNDS.parent.mkdir(exist_ok=True)
    before = 0
    for number, pauses, acknowledged in run_rounds(tmp_path, range(first, first + count), 10.0, chosen, 4_000):
        with ROUNDS.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"round": number, "messages": acknowledged - before, "pauses_s": pauses}) + "\n")
        before = acknowledged
    _sum_up()


def _sum_up() -> None:
    """The table of all rounds that were done."""
    rounds = [json.loads(line) for line in ROUNDS.read_text(encoding="utf-8").splitlines()]
    pauses: dict[str, list[float]] = defaultdict(list)
    for each in rounds:
        for name, pause_s in each["pauses_s"].items():
            pauses[name].append(pause_s)
    lines = ["| fault | rounds | pause, p50 | longest |", "|---|---:|---:|---:|"]
    lines += [f"| {name} | {len(found)} | {median(found):.1f} s | {max(found):.1f} s |" for name, found in pauses.items()]
    lines += ["", f"{sum(each['messages'] for each in rounds)} messages in {len(rounds)} rounds"]
    PAUSES.write_text("\n".join(lines) + "\n", encoding="utf-8")
