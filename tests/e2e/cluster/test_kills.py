"""Three nodes with a mirror-3 group under load of a stock client: the node that runs the broker is killed -9, started again, and
then another. Everything acknowledged is there once, in order."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.cluster.numbers import Writer, check_numbers
from tests.e2e.cluster.running_cluster import running_cluster


def test_acknowledged_messages_survive_kills_of_any_node(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        writer = Writer(cluster.bootstrap)
        writer.go_on()
        first = cluster.active()
        cluster.kill(first)
        writer.go_on()
        second = cluster.active()
        assert second != first
        cluster.start(first)
        cluster.wait_ready(first)
        standby = next(number for number in cluster.nodes if number not in (first, second))
        assert "penstock_ready 1" in cluster.metrics(standby)
        writer.go_on()
        cluster.kill(standby)
        writer.go_on()
        cluster.start(standby)
        cluster.wait_ready(standby)
        assert cluster.nodes[second].stop() == 0, "an orderly stop hands the broker over"
        del cluster.nodes[second]
        writer.go_on()
        writer.end()
        assert cluster.active() in (first, standby)
        check_numbers(writer, cluster.bootstrap)
        for number in (1, 2, 3):
            assert "Traceback" not in cluster.log(number).read_text(encoding="utf-8")
