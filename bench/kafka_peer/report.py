"""The result of a run: kept as JSON, printed with the losing rows first, and written into a page between two marks.

`python -m bench.kafka_peer.report docs/comparison.md` writes the last run into the page again without measuring.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.kafka_peer.brokers import KAFKA_JAVA_OPTIONS, RESULTS
from bench.kafka_peer.pair import WARM_RULE, WarmUp
from bench.kafka_peer.rows import LINE, Compared, Figure, Goal, losing_first

FILE = RESULTS / "kafka_peer.json"
BEGIN = "<!-- Written by python -m bench.kafka_peer; changes are lost. -->"
END = "<!-- The end of what bench.kafka_peer has written. -->"
TITLES = {"kafka": "Kafka", "nats": "NATS JetStream", "floor": "Floor", "redpanda": "Redpanda", "tansu": "Tansu"}


@dataclass(slots=True)
class PeerReport:
    """What was measured beside one peer."""

    name: str
    version: str
    rows: list[Compared] = field(default_factory=list)
    warm_ups: list[WarmUp] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """What was measured in one run."""

    ours: str
    is_quick: bool
    rounds: int
    load_average: float
    when: str = field(default_factory=lambda: time.strftime("%Y-%m-%d", time.gmtime()))
    machine: str = field(default_factory=lambda: f"{platform.system()} on {platform.machine()}, {os.cpu_count()} cores")
    peers: list[PeerReport] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def keep(self) -> None:
        """Write the file of results."""
        RESULTS.mkdir(exist_ok=True)
        FILE.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def last(cls) -> Report:
        """The run that the file of results is of."""
        if not FILE.exists():
            raise SystemExit(f"there is no {FILE}: run python -m bench.kafka_peer first")
        kept = json.loads(FILE.read_text(encoding="utf-8"))
        kept["peers"] = [_peer(peer) for peer in kept["peers"]]
        return cls(**kept)

    def print(self) -> None:
        """All rows again, in the order of their need."""
        for peer in self.peers:
            below, behind = sum(not row.is_met for row in peer.rows), sum(row.ratio < 1 for row in peer.rows)
            print(f"\n{peer.version}: of {len(peer.rows)} rows {below} are below their goal, and in {behind} the peer is ahead")
            print(LINE.format("", "penstock", peer.name, "ratio", "goal", ""))
            for row in losing_first(peer.rows):
                print(row)
        for name, reason in self.missing.items():
            print(f"\n{TITLES.get(name, name)} was not measured: {reason}")

    def write(self, page: Path) -> None:
        """Replace what is between the marks of a page."""
        text = page.read_text(encoding="utf-8")
        if text.count(BEGIN) != 1 or text.count(END) != 1:
            raise SystemExit(f"{page} has to have the lines {BEGIN!r} and {END!r} once each")
        before, rest = text.split(BEGIN)
        page.write_text(f"{before}{BEGIN}\n{self.markdown()}\n{END}{rest.split(END)[1]}", encoding="utf-8")

    def markdown(self) -> str:
        """The part of the page."""
        lines = [
            f"Measured on {self.when} with {self.ours}; {self.machine}; load average before the run {self.load_average:.2f}."
        ]
        kind = "a quick run" if self.is_quick else "a full run"
        lines[0] += f" Medians of {self.rounds} rounds of {kind}, with the lowest and the highest round."
        for peer in self.peers:
            lines += ["", f"### {peer.version}", ""]
            title = TITLES.get(peer.name, peer.name)
            lines += [f"| | Penstock | {title} | Ratio | Goal | Cores of the load |", "|---|---:|---:|---:|---:|---:|"]
            lines += [_markdown_row(row) for row in losing_first(peer.rows)]
            lines += ["", "Warm-up:", ""]
            lines += [f"- {warm_up}" for warm_up in peer.warm_ups]
        if self.missing:
            lines += ["", "### Not measured in this run", ""]
            lines += [f"- **{TITLES.get(name, name)}**: {reason}" for name, reason in self.missing.items()]
        return "\n".join(lines)


def print_rules() -> None:
    """How both brokers are treated, before the first figure."""
    print(f"warm-up: {WARM_RULE}; then each row has one round that does not count")
    print("rounds: in turns, each broker first in every other one; figures are medians, lowest and highest in brackets")
    print(f"java: {' '.join(KAFKA_JAVA_OPTIONS)}")
    print("load: cores that the load generator was using beside ours / beside the peer\n")


def _peer(kept: dict[str, object]) -> PeerReport:
    rows = [
        Compared(
            **{**row, "ours": Figure(**row["ours"]), "peer": Figure(**row["peer"]), "goal": row["goal"] and Goal(**row["goal"])}
        )
        for row in kept["rows"]  # type: ignore[attr-defined]  # a list in the file
    ]
    warm_ups = [WarmUp(**warm_up) for warm_up in kept["warm_ups"]]  # type: ignore[attr-defined]  # a list in the file
    return PeerReport(str(kept["name"]), str(kept["version"]), rows, warm_ups)


def _markdown_row(row: Compared) -> str:
    ratio = f"**{row.ratio:.2f}**" if row.is_lost else f"{row.ratio:.2f}"
    goal = f"{row.goal or ''}{'' if row.is_met else ' missed'}"
    cores = " / ".join(f"{cores:.2f}" for cores in row.load_cores)
    return f"| {row.name} | {row.ours} {row.unit} | {row.peer} {row.unit} | {ratio} | {goal} | {cores} |"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m bench.kafka_peer.report PAGE")
    Report.last().write(Path(sys.argv[1]))
