"""Rules of each kind of pipeline: required, forbidden and contradictory fields, reported with their lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.kafka.client import LATEST
from penstock.spark.pipelines.errors import SpecFault
from penstock.spark.pipelines.spec import FAN_OUT, PipelineSpec

_TO_TOPIC: Final = ("load",)
_TO_TABLE: Final = ("export", "compact", "audit")
_Blame = Callable[[str, str], None]


def check_kind(spec: PipelineSpec, faults: list[SpecFault]) -> None:
    """Report violations of the kind's rules."""
    if not spec.kind:
        return

    def blame(field: str, what: str) -> None:
        faults.append(spec.origin.fault(field, what))

    _check_source(spec, blame)
    _check_target(spec, blame)
    _check_transform(spec, blame)
    _check_merge(spec, blame)
    if spec.kind == "replay" and spec.trigger.every_s is not None:
        blame("trigger", "a replay ends by itself; leave the trigger out")
    if spec.vital and spec.kind == "load":
        blame("vital", "a load reads no topic, so no trimming waits for it; leave it out")


def _check_source(spec: PipelineSpec, blame: _Blame) -> None:
    source = spec.source
    given = [
        name
        for name, value in (
            ("topics", source.topics),
            ("pattern", source.pattern),
            ("files", source.files),
            ("table", source.table),
        )
        if value
    ]
    wanted = ("files", "table") if spec.kind == "load" else ("topics", "pattern")
    for name in given:
        if name not in wanted:
            blame(f"source.{name}", f"a pipeline of kind {spec.kind} reads {' or '.join(wanted)}")
    fitting = [name for name in given if name in wanted]
    if len(fitting) != 1:
        said = f"{' and '.join(fitting)} are given" if fitting else "neither is given"
        blame("source", f"a pipeline of kind {spec.kind} reads one of {' and '.join(wanted)}; {said}")
    if source.end is not None and spec.kind != "replay":
        blame("source.end", f"only a replay has an end; this is kind {spec.kind}")
    if (
        spec.kind == "replay"
        and source.start.offsets is None
        and source.start.timestamp_ms is None
        and source.start.end == LATEST
    ):
        blame("source.start", "a replay from latest on would read nothing; give earliest, a time or offsets")
    if source.files is not None and source.files.format == "csv" and source.files.schema is None:
        blame("source.files", "schema is missing; CSV files do not tell the types of their columns")
    if source.pattern is not None and source.values:
        blame("source.values", "topics of a pattern are all decoded alike; use value")
    for name in source.topics:
        if spec.target.topic == name:
            blame("target.topic", f"{name!r} is read as well: the pipeline would feed itself; write to another topic")
        if spec.dead_letters.topic == name:
            blame("dead_letters.topic", f"{name!r} is read as well: the pipeline would feed itself; use another topic")


def _check_target(spec: PipelineSpec, blame: _Blame) -> None:
    target = spec.target
    if target.topic is None and target.table is None:
        wanted = "table" if spec.kind in _TO_TABLE else "topic" if spec.kind in _TO_TOPIC else "topic or table"
        blame("target", f"{wanted} is missing")
    if target.fan_out:
        _check_fan_out(spec, blame)
    if FAN_OUT.search(spec.dead_letters.topic or ""):
        blame("dead_letters.topic", "dead letters have no columns; name one topic")
    letters = spec.dead_letters.table
    if letters is not None and FAN_OUT.search(f"{letters.name} {letters.location}"):
        blame("dead_letters.table", "dead letters have no columns; name one table")
    if target.topic is not None and spec.kind in _TO_TABLE:
        blame("target.topic", f"a pipeline of kind {spec.kind} has a table as its target")
    if target.table is not None and spec.kind in _TO_TOPIC:
        blame("target.table", f"a pipeline of kind {spec.kind} has a topic as its target")
    if target.topic is not None and target.topic == spec.dead_letters.topic:
        blame("dead_letters.topic", "it is the target as well; bad rows need a topic of their own")
    if target.topic is not None and spec.dead_letters.table is not None:
        blame("dead_letters.table", "rows for a topic and dead letters for a table cannot be committed as one; use a topic")


def _check_fan_out(spec: PipelineSpec, blame: _Blame) -> None:
    table = spec.target.table
    if table is None:
        if spec.kind not in ("transform", "load"):
            blame(
                "target.topic", f"a pipeline of kind {spec.kind} writes to one topic; kind transform or load sends rows to many"
            )
        return
    if spec.kind not in ("transform", "export"):
        blame("target.table", f"a pipeline of kind {spec.kind} works on one table; kind export or transform sends rows to many")
    for field in ("name", "location"):
        place = getattr(table, field)
        if place is not None and set(FAN_OUT.findall(place)) != set(spec.target.fan_out):
            blame(
                f"target.table.{field}",
                f"{place!r} would be the same for several tables; it needs {{{'}, {'.join(spec.target.fan_out)}}}",
            )


def _check_merge(spec: PipelineSpec, blame: _Blame) -> None:
    table, transform = spec.target.table, spec.transform
    mode = "append" if transform is None else transform.output_mode
    if mode == "complete":
        blame("transform.output_mode", "complete repeats the whole result with every batch; use append, or update with a merge")
    if table is None:
        return
    if table.merge is None:
        if mode == "update":
            blame(
                "transform.output_mode",
                "update writes a row again whenever it changes, and the table would hold every one; give target.table a merge "
                "with the key of its rows, or use append",
            )
        return
    if table.format == "parquet":
        blame("target.table.merge", "plain Parquet has no commit that replaces files at once; use delta or iceberg")
    if spec.kind not in ("export", "transform", "replay"):
        blame("target.table.merge", f"a pipeline of kind {spec.kind} does not merge; use kind export or transform")
    if table.merge.history and transform is not None and table.merge.order_by is None:
        blame("target.table.merge", "order_by is missing; rows of a query have no time of their own to begin a version at")


def _check_transform(spec: PipelineSpec, blame: _Blame) -> None:
    transform = spec.transform
    if transform is None:
        if spec.kind == "transform":
            blame("", "transform is missing; give it sql or python")
        return
    if spec.kind not in ("transform", "export"):
        blame("transform", f"a pipeline of kind {spec.kind} takes rows as they are; kind transform or export changes them")
    has_watermark = transform.watermark is not None or bool(transform.watermarks)
    if transform.state == "stateless" and (has_watermark or transform.output_mode != "append"):
        blame("transform.state", "watermarks and output modes are about state; leave them out, or set state to auto")
    for name in transform.watermarks:
        if spec.source.topics and name not in spec.source.topics:
            blame(f"transform.watermark.{name}", f"{name!r} is none of the topics; they are {', '.join(spec.source.topics)}")
    for name in transform.tables:
        if name in spec.source.topics:
            blame(f"transform.tables.{name}", "a topic has the same name; call the table another")
