"""The Spark part of the demo, in a process of its own: the files of two pipelines, and both run in one session until SIGTERM."""

from __future__ import annotations

import importlib.util
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.spark.pipelines.runner import Runner

TOTALS_PIPELINE, TABLE_PIPELINE = "shop-totals", "shop-table"
WINDOW_MS: Final = 2000
LATE_MS: Final = 3000
"How late an event may be: a window closes when an event arrives that is later than its end by this."

_SOURCE: Final = """\
brokers: {bootstrap}
source:
  topics: [{events}]
  start: earliest
  value:
    format: json
    schema: "id BIGINT, event STRING, customer STRING, product STRING, category STRING, country STRING, cents BIGINT"
dead_letters: stop
trigger: {{every: 1s}}
"""

_TOTALS: Final = """\
# What was seen, ordered and earned in each window, by category. A window is written once, when it is over.
pipeline: {name}
kind: transform
{source}transform:
  sql: |
    SELECT category AS key, unix_millis(window.start) AS window_ms, category, count(*) AS events,
           count_if(event = 'order') AS orders, sum(cents) AS cents
    FROM source
    GROUP BY window(timestamp, '{window_ms} milliseconds'), category
  watermark: {{column: timestamp, delay: {late_ms} milliseconds}}
  checkpoint: {folder}/state
target: {{topic: {totals}}}
"""

_TABLE: Final = """\
# Every event, once, in a table on disk.
pipeline: {name}
kind: export
{source}target:
  table: {{format: {format}, location: {folder}/events}}
"""

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
}


def table_format() -> str:
    """Delta if its library is there, else Parquet files with a log of their own."""
    return "delta" if importlib.util.find_spec("deltalake") is not None else "parquet"


def write_files(folder: Path, bootstrap: str, events: str, totals: str) -> tuple[Path, Path]:
    """The files of both pipelines, as a person would write them."""
    source = _SOURCE.format(bootstrap=bootstrap, events=events)
    of_totals, of_table = folder / "totals.yaml", folder / "table.yaml"
    of_totals.write_text(
        _TOTALS.format(name=TOTALS_PIPELINE, source=source, window_ms=WINDOW_MS, late_ms=LATE_MS, folder=folder, totals=totals),
        encoding="utf-8",
    )
    of_table.write_text(_TABLE.format(name=TABLE_PIPELINE, source=source, format=table_format(), folder=folder), encoding="utf-8")
    return of_totals, of_table


def main(files: list[str]) -> int:
    """Run all of them; 1 as soon as one has failed."""
    import penstock.spark
    from penstock.spark.pipelines.progress import ProgressDisplay
    from penstock.spark.pipelines.runner import Runner
    from penstock.spark.pipelines.spec_reading import read_spec

    specs = [read_spec(file) for file in files]
    spark = penstock.spark.session("penstock-demo", master="local[2]", settings=_SETTINGS)
    runners = [Runner(spec, lambda: spark, ProgressDisplay()) for spec in specs]
    # After Spark has started, which sets handlers of its own.
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    failures: list[BaseException] = []
    threads = [threading.Thread(target=_run, args=(runner, failures, ending)) for runner in runners]
    for thread in threads:
        thread.start()
    ending.wait()
    for runner in runners:
        runner.stop()
    for thread in threads:
        thread.join()
    spark.stop()
    for failure in failures:
        print(f"{type(failure).__name__}: {str(failure).strip().splitlines()[0]}", file=sys.stderr, flush=True)
    return 1 if failures else 0


def _run(runner: Runner, failures: list[BaseException], ending: threading.Event) -> None:
    try:
        runner.run()
    except BaseException as error:  # noqa: BLE001 - told by the main thread, which ends all others
        failures.append(error)
        ending.set()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
