"""`penstock pipeline init`: a file to begin with, in which every field says what it is for."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path
from typing import Final

from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, usage

_HEAD: Final = """\
# {summary}
# Check it with `penstock pipeline validate {file}`, run it with `penstock pipeline run {file}`.
pipeline: {name}
kind: {kind}
brokers: 127.0.0.1:9092
# options: {{kafka.security.protocol: SASL_SSL}}   # any kafka.* option of the source and the sink
"""
_TOPIC_SOURCE: Final = """
source:
  topics: [events]                 # or pattern: "events-.*"
  start: earliest                  # earliest, latest, {time: 2026-11-01T00:00:00Z} or {offsets: {events: {0: 10}}}
  value:                           # without it values stay bytes
    format: json                   # json, avro or raw
    schema: "id BIGINT, name STRING, at TIMESTAMP"
  # headers: true                  # add the column headers
  # lost_data: skip                # continue when retention deleted rows that were not read; the default is to fail
"""
_DEAD: Final = """
# Rows that cannot be decoded go here, with the reason: {topic: NAME}, {table: {...}}, or stop.
dead_letters: {topic: NAME.dead}
"""
_TAIL: Final = """
trigger: continuous                # continuous, once or {every: 5m}
batch: {rows_max: 1000000}
restart: {attempts: 10, backoff: 5s}
# consumer: NAME                   # the consumer group that offsets are committed for; the default is the pipeline's name
# vital: true                      # the broker does not delete messages that this pipeline has not read
"""
_TABLE_TARGET: Final = """
target:
  table:
    format: delta                  # delta, iceberg or parquet
    location: ./lake/events        # a directory, or s3://bucket/path with target.options or AWS_… variables
    # name: db.events              # iceberg: the name in the catalog
    # catalog: {type: sql, uri: "sqlite:///catalog.db"}
    partition_by: ["day(_timestamp)"]
    schema_evolution: add_columns  # or refuse
    # compact: {every: 1h, file_bytes: 128MiB}
    # vacuum: {after: 7d}
"""
_PARTS: Final = {
    "export": ("Writes a topic to a table, each row exactly once.", _TOPIC_SOURCE + _TABLE_TARGET + _DEAD + _TAIL),
    "load": (
        "Writes files, or a table, to a topic, each row exactly once.",
        """
source:
  files:
    path: ./incoming/*.parquet     # a file, a directory or a pattern, also s3://BUCKET/…
    format: parquet                # parquet, csv or json (a JSON object a line)
    # schema: "id BIGINT, name STRING"   # csv needs it; without it, json lines are copied unchanged
  # table: {format: delta, location: ./lake/events}   # instead of files

target: {topic: events}            # a row becomes a JSON object; a column key becomes the key
"""
        + _TAIL.replace(
            "# vital: true                      # the broker does not delete messages that this pipeline has not read\n",
            "",
        ),
    ),
    "transform": (
        "Transforms topics into another with SQL or a Python function, each row exactly once.",
        _TOPIC_SOURCE
        + """
transform:
  # A topic is a view by its name: the columns of its values, and key, timestamp, topic, partition and offset.
  sql: |
    SELECT CAST(id AS STRING) AS key, id, upper(name) AS name, at
    FROM events
    WHERE name IS NOT NULL
  # python: functions.py:make      # instead: DataFrames in, by the names of the views, a DataFrame out
  # watermark: {column: at, delay: 10 minutes}        # for windows and joins of topics: how late rows may be
  # output_mode: append            # or update
  # tables: {users: {format: parquet, location: ./lake/users}}
  # checkpoint: ./state            # where the state of windows and joins is stored

target: {topic: names}             # a result without a column value is written as JSON; a column key becomes the key
"""
        + _DEAD
        + _TAIL,
    ),
    "replay": (
        "Copies a range of a topic to another topic or a table, then exits.",
        """
source:
  topics: [events]
  start: {time: 2026-11-01T00:00:00Z}   # earliest, a time or offsets
  end: {time: 2026-11-02T00:00:00Z}     # latest, a time or offsets

target: {topic: events-again}
batch: {rows_max: 1000000}
restart: {attempts: 10, backoff: 5s}
""",
    ),
    "compact": (
        "Keeps the last value of every key of a topic as a table that follows it.",
        _TOPIC_SOURCE + _TABLE_TARGET.replace('    partition_by: ["day(_timestamp)"]\n', "") + _DEAD + _TAIL,
    ),
    "audit": (
        "Compares a topic with the table that an export made of it, and reports what differs.",
        _TOPIC_SOURCE
        + _TABLE_TARGET.replace('    partition_by: ["day(_timestamp)"]\n    schema_evolution: add_columns  # or refuse\n', ""),
    ),
}


def init(arguments: Namespace) -> int:
    """Write a file, never over another."""
    path = Path(arguments.file or f"{arguments.kind}.yaml")
    name = arguments.name or path.stem
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise usage(f"{name!r} cannot name a pipeline; use letters, digits, '.', '_' and '-', or give --name")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template(arguments.kind, name, str(path)))
    except FileExistsError as error:
        raise CommandError(f"{path} already exists; give another file") from error
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror or error}") from error
    print(f"wrote {path}; `penstock pipeline validate {path}` checks it")
    return ExitCode.OK


def template(kind: str, name: str, file: str) -> str:
    """The text of a file for a kind."""
    summary, body = _PARTS[kind]
    return _HEAD.format(summary=summary, file=file, name=name, kind=kind) + body.replace("NAME", name)
