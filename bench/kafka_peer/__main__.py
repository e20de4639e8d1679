"""`python -m bench.kafka_peer [--quick] [--peers kafka,nats,floor] [--write docs/comparison.md]`: Penstock beside its peers.

Both brokers are warmed up by one rule, measured in turns, and compared like with like: ours `os` with a peer as it comes (neither
syncs), ours `fsync` with a peer that flushes every message. A ratio above 1 is in Penstock's favour. Where the client is the
limit the processor time of the brokers tells more. The rows are kept in bench/results/kafka_peer.json.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from bench.kafka_peer import footprint, producing
from bench.kafka_peer.brokers import RESULTS, BrokerProcess, FloorProcess, KafkaProcess, NotInstalledError, PenstockProcess
from bench.kafka_peer.coordination import coordination
from bench.kafka_peer.nats_server import NatsProcess
from bench.kafka_peer.pair import Pair
from bench.kafka_peer.report import PeerReport, Report, print_rules
from bench.kafka_peer.rows import LINE, Compared
from bench.measure import check_compiled

Rows = Callable[[Pair], list[Compared]]

PEERS: dict[str, type[BrokerProcess]] = {"kafka": KafkaProcess, "nats": NatsProcess, "floor": FloorProcess}
# Peers that were looked for and cannot be run, and why.
NOT_TO_BE_HAD = {
    "redpanda": "its server is published as packages and images of its own repository, and by no package index of a language",
    "tansu": "`cargo install tansu` (0.6.0) had not come to an end after 22 minutes on two busy cores",
}
# Measured before the warm-up.
BEFORE: dict[str, Rows] = {"start": footprint.start}
UNSYNCED: dict[str, Rows] = {
    "synchronous": producing.synchronous,
    "end-to-end": producing.end_to_end,
    "throughput": producing.throughput,
    "idle": producing.idle_consumers,
    "under-compaction": producing.under_compaction,
    "coordination": coordination,
    "perf-tool": footprint.perf_tool,
    "memory": footprint.after_load,
    "thousand": footprint.thousand,
}
SYNCED: dict[str, Rows] = {
    "synchronous": producing.synchronous,
    "end-to-end": producing.end_to_end,
    "throughput": producing.throughput,
    "under-compaction": producing.under_compaction,
}
# A peer that speaks another protocol is compared on raw connections, where the client costs the same.
RAW: dict[str, Rows] = {
    "synchronous": lambda pair: producing.raw_synchronous(pair, (1, 64, 256)),
    "throughput": producing.pipelined,
    "end-to-end": producing.raw_end_to_end,
}
# What is compared with several workers too.
WITH_WORKERS = {"synchronous", "end-to-end", "throughput", "idle"}
# Of the floor only what it has.
FLOOR: dict[str, Rows] = {"synchronous": producing.floor}
NAMES = [*BEFORE, *UNSYNCED]


def main() -> int:
    """Compare; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.kafka_peer", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer shapes and shorter rounds: rougher, but warmed up as well")
    parser.add_argument(
        "--peers", default="kafka,nats,floor", help=f"which of {', '.join(PEERS)}; those that are not installed are named"
    )
    parser.add_argument("--workers", type=int, default=1, help="of Penstock; with several only some rows, beside Kafka")
    parser.add_argument("--rows", default=",".join(NAMES), help=f"which kinds of rows: {', '.join(NAMES)}; all by default")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the tables into this page, between its two marks")
    options = parser.parse_args()
    peers, names = options.peers.split(","), options.rows.split(",")
    for given, known in ((peers, [*PEERS, *NOT_TO_BE_HAD]), (names, NAMES)):
        if unknown := sorted(set(given) - set(known)):
            parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    if options.workers > 1 and peers != ["kafka"]:
        parser.error("--workers is for --peers kafka")
    check_compiled()
    # A comparison that is told to end stops its brokers and removes their files first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    ours = PenstockProcess.version() + (f", {options.workers} workers" if options.workers > 1 else "")
    report = Report(ours, options.quick, 3 if options.quick else 5, os.getloadavg()[0])
    report.missing.update(NOT_TO_BE_HAD)
    print(
        f"load average {report.load_average:.2f} on {os.cpu_count()} cores: the more of it is not ours, the less the figures say"
    )
    print_rules()
    for name in peers:
        if name in PEERS:
            _measure(report, PEERS[name], names, options.workers)
    report.keep()
    report.print()
    if options.write is not None:
        report.write(options.write)
    return 0 if all(row.is_met for peer in report.peers for row in peer.rows) else 1


def _measure(report: Report, kind: type[BrokerProcess], names: list[str], workers: int) -> None:
    """Everything beside one peer, without fsync and with it."""
    try:
        peer = PeerReport(kind.name, kind.version())
    except NotInstalledError as error:
        report.missing[kind.name] = str(error)
        return
    report.peers.append(peer)
    print(LINE.format(peer.version, "penstock", peer.name, "ratio", "goal", ""))
    directory = RESULTS / "peer"
    for synced in (False, True):
        shutil.rmtree(directory, ignore_errors=True)
        groups = _groups(kind, synced=synced)
        if workers > 1:
            groups = {name: rows for name, rows in groups.items() if name in WITH_WORKERS}
        chosen = [rows for name, rows in groups.items() if name in names]
        pair = Pair(directory, kind, synced=synced, rounds=report.rounds, is_quick=report.is_quick, workers=workers)
        with pair:
            if not synced and workers == 1 and kind is not FloorProcess:
                for rows in (rows for name, rows in BEFORE.items() if name in names):
                    peer.rows += rows(pair)
            if chosen:
                peer.warm_ups += pair.warm_up()
            for rows in chosen:
                peer.rows += rows(pair)
                report.keep()
    shutil.rmtree(directory, ignore_errors=True)


def _groups(kind: type[BrokerProcess], *, synced: bool) -> dict[str, Rows]:
    """The rows that are measured beside a peer."""
    if kind is FloorProcess:
        return FLOOR
    if kind.wire != "kafka":
        return RAW
    return SYNCED if synced else UNSYNCED


if __name__ == "__main__":
    sys.exit(main())
