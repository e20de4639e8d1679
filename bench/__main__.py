"""`python -m bench [--quick] [names…]`: measure, print a table, keep it as JSON in bench/results/last.json."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from bench import (
    arrow_decode,
    block42,
    compaction,
    interconnect,
    million,
    nodes,
    none_puts,
    none_reads,
    produce_calls,
    put_cpu,
    queue_reads,
    queue_writes,
    schema_load,
    schemas,
    streams,
    value_decode,
    workers,
    ydb_topics,
    yt_queues,
)
from bench.measure import Row, Setting, check_compiled
from penstock.core.memory import collect_seldom, keep_freed_memory

RESULTS = Path(__file__).parent / "results"
TOPICS: dict[str, Callable[[Setting], Awaitable[list[Row]]]] = {
    "puts": none_puts.rows,
    "reads": none_reads.rows,
    "code": block42.code_rows,
    "block-puts": block42.put_rows,
    "cpu": put_cpu.rows,
    "interconnect": interconnect.rows,
    "nodes": nodes.rows,
    "million": million.rows,
    "queue-writes": queue_writes.rows,
    "queue-reads": queue_reads.rows,
    "calls": produce_calls.rows,
    "workers": workers.rows,
    "arrow-decode": arrow_decode.rows,
    "value-decode": value_decode.rows,
    "compaction": compaction.rows,
    "schemas": schemas.rows,
    "schema-load": schema_load.rows,
    "streams": streams.rows,
    "ydb": ydb_topics.rows,
    "yt": yt_queues.rows,
}
LINE = "{:<66} {:>10} {:>20} {:>16} {:>9} {:>7}  {}"


def main() -> int:
    """Measure what was asked for; 1 if a goal was missed."""
    arguments = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    arguments.add_argument("names", nargs="*", metavar="name", help=f"what to measure: {', '.join(TOPICS)}; all by default")
    arguments.add_argument("--quick", action="store_true", help="fewer rounds: under a minute, and rougher")
    options = arguments.parse_args()
    unknown = sorted(set(options.names) - TOPICS.keys())
    if unknown:
        arguments.error(f"there is no benchmark named {', '.join(unknown)}; there are {', '.join(TOPICS)}")
    check_compiled()
    # A benchmark that is told to end removes its files first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    keep_freed_memory()  # as `penstock up` does
    collect_seldom()
    RESULTS.mkdir(exist_ok=True)
    found: list[Row] = []
    load = os.getloadavg()[0]
    print(f"load average {load:.2f} on {os.cpu_count()} cores: the more of it is not ours, the less the figures say\n")
    print(LINE.format("", "ours", "beside", "quartiles", "figure", "goal", ""))
    for name in options.names or TOPICS:
        # Beside the results, because the system's directory for temporary files may be in memory.
        with tempfile.TemporaryDirectory(prefix="scratch-", dir=RESULTS) as scratch:
            for row in uvloop.run(_measured(TOPICS[name], Setting(Path(scratch), options.quick))):
                found.append(row)
                print(_line(row), flush=True)
    _keep(found, load, quick=options.quick)
    missed = [row.name for row in found if row.met is False]
    print(
        f"\n{len(missed)} of {sum(row.met is not None for row in found)} goals missed" + "".join(f"\n  {name}" for name in missed)
    )
    return 1 if missed else 0


async def _measured(topic: Callable[[Setting], Awaitable[list[Row]]], setting: Setting) -> list[Row]:
    return await topic(setting)


def _line(row: Row) -> str:
    verdict = {True: "met", False: "MISSED", None: ""}[row.met]
    goal = "" if row.goal is None else f"{'>=' if row.at_least else '<='} {row.goal:g}"
    spread = f"{row.low:.3g} .. {row.high:.3g}"
    return LINE.format(row.name, row.ours, row.beside, spread, f"{row.figure:.3g} {row.unit}", goal, verdict)


def _keep(found: list[Row], load: float, *, quick: bool) -> None:
    run = {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load_average_before": load,
        "quick": quick,
        "rows": [row.as_json() for row in found],
    }
    (RESULTS / "last.json").write_text(json.dumps(run, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
