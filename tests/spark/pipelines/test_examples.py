"""The examples, run on a part of their data."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import pytest

from penstock.spark.pipelines.spec_reading import read_spec
from penstock.spark.tables.table import table_of
from tests.spark.conftest import ROOT
from tests.spark.pipelines.runs import Runs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

EXAMPLES = ROOT / "examples" / "pipelines"


def generator(folder: str) -> ModuleType:
    """The generator of an example, as a module."""
    spec = importlib.util.spec_from_file_location(f"generate_{folder}", EXAMPLES / folder / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prepare(runs: Runs, folder: str, topic: str, count: int, *options: str) -> Path:
    """A copy of an example that knows the broker, and its topic with data in it."""
    copy = runs.directory / folder
    shutil.copytree(EXAMPLES / folder, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for path in [*copy.glob("*.yaml"), *copy.glob("*.py")]:
        path.write_text(path.read_text().replace("127.0.0.1:9092", runs.node.bootstrap))
    runs.topic(topic)
    command = [sys.executable, "generate.py", "--count", str(count), *options]
    lines = subprocess.run(command, cwd=copy, capture_output=True, check=True).stdout
    runs.node.ok("produce", topic, "-K", "|", stdin=lines)
    return copy


def closed_sessions(clicks: list[tuple[str, str]]) -> tuple[Counter[tuple[str, int]], int]:
    """Visitors and clicks of the sessions that are over by the last click, and how many clicks cannot be read."""
    times: dict[str, list[datetime]] = defaultdict(list)
    for visitor, value in clicks:
        if value.endswith("}"):
            times[visitor].append(datetime.fromisoformat(json.loads(value)["at"]))
    last = max(max(one) for one in times.values())
    found: Counter[tuple[str, int]] = Counter()
    for visitor, seen in times.items():
        session: list[datetime] = []
        for at in [*sorted(seen), datetime.max.replace(tzinfo=UTC)]:
            if session and at - session[-1] >= timedelta(minutes=10):
                # Ten minutes of pause, and five for clicks that are late.
                found[visitor, len(session)] += session[-1] + timedelta(minutes=15) <= last
                session = []
            session.append(at)
    return +found, sum(not value.endswith("}") for _, value in clicks)


@pytest.mark.soak
def test_clicks_become_sessions(runs: Runs) -> None:
    copy = prepare(runs, "clickstream", "clicks", 3000)
    state = runs.run(read_spec(str(copy / "sessions.yaml")))
    sessions = runs.values("sessions")
    expected, cut_off = closed_sessions(generator("clickstream").clicks(3000, 1))
    assert len(sessions) > 300
    assert any(one["bought"] for one in sessions)
    assert Counter((one["visitor"], one["clicks"]) for one in sessions) == expected
    assert (len(runs.rows("clicks-dead")), state["dead_letters"]) == (cut_off, cut_off)
    assert cut_off > 0


def test_order_totals_are_what_the_orders_come_to(runs: Runs) -> None:
    copy = prepare(runs, "orders", "orders-example", 4000, "--rates", "rates.parquet")
    file = copy / "totals.py"
    file.write_text(
        file.read_text()
        .replace('["orders"]', '["orders-example"]')
        .replace("totals(orders:", "totals(orders_example:")
        .replace("= orders.join", "= orders_example.join")
    )
    runs.run(read_spec(str(file)))
    module = generator("orders")
    expected = module.totals(module.orders(4000, 1))
    found = {(one["shop"], one["hour"]): (one["orders"], one["cents"]) for one in runs.values("order-totals")}
    assert len(found) > 200
    assert found == {key: value for key, value in expected.items() if key in found}
    # Only hours that ended within the last ten minutes, or have not, are still open.
    assert {hour for _, hour in expected.keys() - found.keys()} <= set(sorted({hour for _, hour in expected})[-2:])


@pytest.mark.soak
def test_readings_become_an_iceberg_table(runs: Runs) -> None:
    copy = prepare(runs, "telemetry", "telemetry", 2000)
    spec = read_spec(str(copy / "to_iceberg.yaml"))
    runs.run(spec)
    assert spec.target.table is not None
    table = table_of(spec, spec.target.table)
    table.refresh()
    reader = table.reader()
    rows = [row for file in table.data_files() for batch in reader.read(file) for row in batch.to_pylist()]
    wanted = [reading for _, reading in generator("telemetry").readings(2000, 1)]
    assert sorted((row["device"], row["sequence"], row["celsius"]) for row in rows) == sorted(
        (one["device"], one["sequence"], one["celsius"]) for one in wanted
    )
    assert sum(row["humidity"] is not None for row in rows) == sum("humidity" in one for one in wanted)
    assert "telemetry-to-iceberg" in json.dumps(json.loads(runs.node.ok("topic", "describe", "telemetry", "-o", "json")))
