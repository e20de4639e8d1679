"""`penstock pipeline status` and `list`: what pipelines have reported to the broker."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from penstock.cli.consumer import Consumer
from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError
from penstock.cli.kafka_client import CommandClient
from penstock.cli.output import Output
from penstock.cli.positions import EARLIEST, LATEST, list_offsets

TOPIC: Final = "__penstock_pipelines"
SILENT_MS: Final = 15_000
RUNNING: Final = frozenset({"starting", "running", "waiting", "restarting"})

Action = Callable[[CommandClient, Namespace, Output], int]
State = dict[str, Any]


def list_pipelines(client: CommandClient, arguments: Namespace, output: Output) -> int:
    """A line a pipeline."""
    states = [_seen(state) for _, state in sorted(read_states(client).items())]
    if output.as_json:
        output.document(states)
        return ExitCode.OK
    columns = ("name", "kind", "state", "rows/s", "lag", "rows", "source", "target")
    output.rows(
        columns,
        [
            (
                state["name"],
                state["kind"],
                state["state"],
                state["rows_per_s"],
                state["lag_rows"],
                state["rows_written"],
                state["source"],
                state["target"],
            )
            for state in states
        ],
    )
    return ExitCode.OK


def status(client: CommandClient, arguments: Namespace, output: Output) -> int:
    """All that some pipelines have reported."""
    states = read_states(client)
    matching = []
    for name in arguments.names:
        if name not in states:
            known = f"there are {', '.join(sorted(states))}" if states else "there are none yet"
            raise CommandError(f"no pipeline {name!r} is known to the broker; {known}")
        matching.append(_seen(states[name]))
    if output.as_json:
        output.document(matching)
        return ExitCode.OK
    for state in matching:
        for line in _lines(state):
            output.line(line)
    return ExitCode.OK


def read_states(client: CommandClient) -> dict[str, State]:
    """The last word of every pipeline, by name."""
    if not any(topic.name == TOPIC and topic.error_code == 0 for topic in client.metadata([TOPIC]).topics):
        return {}
    topic = client.topic(TOPIC)
    starts, ends = list_offsets(client, topic, {0: EARLIEST}), list_offsets(client, topic, {0: LATEST})
    states: dict[str, State] = {}
    for records in Consumer(client, topic, starts, ends).read():
        for _, record in records:
            name = bytes(record.key or b"").decode("utf-8", "replace")
            if record.value is None:
                states.pop(name, None)
            else:
                states[name] = _report(name, bytes(record.value))
    return states


def _report(name: str, value: bytes) -> State:
    """A report with all that is shown in lists; something else in its place, or of another version, is no reason to fail."""
    lacking = {"name": name, "kind": "", "state": "unknown", "source": "", "target": ""}
    try:
        report = json.loads(value)
    except ValueError:
        report = None
    if not isinstance(report, dict):
        report = {"last_error": "its last report cannot be read"}
    return {**lacking, **dict.fromkeys(("rows_per_s", "lag_rows", "rows_written"), 0), **report}


def _seen(state: State) -> State:
    """A pipeline that says it runs, and has not said so for a while, is silent: its process or its broker is gone."""
    age_ms = int(time.time() * 1000) - int(state.get("updated_ms", 0))
    if state.get("state") in RUNNING and age_ms > SILENT_MS:
        return {**state, "state": "silent", "rows_per_s": 0}
    return state


def _lines(state: State) -> list[str]:
    lines = [f"{state['name']}  {state['kind']}  {state['state']}"]
    rows = (
        ("file", state.get("file")),
        ("run by", f"{state.get('user')} on {state.get('host')}, process {state.get('pid')}"),
        ("source", state.get("source")),
        ("target", state.get("target")),
        ("trigger", state.get("trigger")),
        ("started", _time(state.get("started_ms"))),
        ("reported", _time(state.get("updated_ms"))),
        ("batches", f"{state.get('batches', 0):,}, the last in {state.get('last_batch_ms', 0):,} ms"),
        ("rows", f"{state.get('rows_read', 0):,} read, {state.get('rows_written', 0):,} written"),
        ("dead letters", f"{state['dead_letters']:,}" if state.get("dead_letters") else None),
        ("late rows", f"{state['late_rows']:,}, dropped by the watermark" if state.get("late_rows") else None),
        ("empty rows", f"{state['empty_rows']:,}, without any field of the schema" if state.get("empty_rows") else None),
        ("speed", f"{state.get('rows_per_s', 0):,} rows/s"),
        ("lag", f"{state.get('lag_rows', 0):,} rows"),
        ("Spark", state.get("spark_ui")),
        ("last error", state.get("last_error")),
    )
    return lines + [f"  {name:<13}{value}" for name, value in rows if value]


def _time(at_ms: int | None) -> str:
    return datetime.fromtimestamp((at_ms or 0) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


ACTIONS: Final[dict[str, Action]] = {"status": status, "list": list_pipelines}
