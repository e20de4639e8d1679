"""From a declaration to a `PipelineSpec`: every field checked, and all that is wrong told at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any, Final

from penstock.kafka.client import EARLIEST, LATEST, TopicPartition
from penstock.spark.options import Position
from penstock.spark.pipelines.broker_options import check_options
from penstock.spark.pipelines.errors import SpecError, SpecFault
from penstock.spark.pipelines.kind_rules import check_kind
from penstock.spark.pipelines.section import Section, duration_s
from penstock.spark.pipelines.spec import (
    DELETES,
    FAN_OUT,
    KINDS,
    METADATA,
    ROWS_MAX,
    DeadLetterSpec,
    FilesSpec,
    MergeSpec,
    Origin,
    PipelineSpec,
    RestartSpec,
    SourceSpec,
    TableSpec,
    TargetSpec,
    TransformSpec,
    TriggerSpec,
    ValueSpec,
    Watermark,
)
from penstock.spark.pipelines.spec_file import Declaration, read_file
from penstock.spark.pipelines.value_reading import read_value

BROKERS: Final = "127.0.0.1:9092"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


def read_spec(path: str, brokers: str = BROKERS) -> PipelineSpec:
    """The pipeline of a file; SpecError with all that is wrong in it. `brokers` are those of a file that names none."""
    return check(read_file(path), brokers)


def check(declaration: Declaration, brokers: str = BROKERS) -> PipelineSpec:
    """The pipeline of a declaration; SpecError with all that is wrong in it."""
    faults: list[SpecFault] = []
    spec = _pipeline(Section(declaration.fields, "", declaration.origin, faults), declaration.origin, brokers)
    check_kind(spec, faults)
    if faults:
        raise SpecError(sorted(dict.fromkeys(faults), key=lambda fault: fault.line))
    return spec


def _pipeline(top: Section, origin: Origin, own_brokers: str) -> PipelineSpec:
    top.require("pipeline", "it is the name under which positions and state are kept")
    name = top.text("pipeline") or "unnamed"
    if not NAME.fullmatch(name):
        top.blame("pipeline", f"it is {name!r}; a name has letters, digits, '.', '_' and '-', at most 100")
    top.require("kind", f"it takes one of {', '.join(KINDS)}")
    kind = top.text("kind", choices=tuple(KINDS)) or ""
    brokers = top.resolved("brokers", top.text("brokers", own_brokers) or "")
    options = top.settings("options")
    top.require("source", "it says what is read")
    top.require("target", "it says where rows go")
    source = top.read("source", _source) or SourceSpec()
    target = top.read("target", _target) or TargetSpec()
    rows_max, tasks_min = top.read("batch", _batch) or (ROWS_MAX, 1)
    spec = PipelineSpec(
        name=name,
        kind=kind,
        brokers=brokers,
        origin=origin,
        options=options,
        source=source,
        target=target,
        transform=top.read("transform", lambda section: _transform(section, origin)),
        dead_letters=_dead_letters(top, name),
        trigger=_trigger(top),
        rows_max=rows_max,
        tasks_min=tasks_min,
        restart=top.read("restart", _restart) or RestartSpec(),
        consumer=top.text("consumer", name) or name,
        vital=top.flag("vital", False),
        application=_application(top),
    )
    check_options(top, brokers, options)
    top.finish()
    return spec


def _application(top: Section) -> str:
    application = top.text("application") or ""
    if application and not NAME.fullmatch(application):
        top.blame("application", f"it is {application!r}; a name has letters, digits, '.', '_' and '-', at most 100")
    return application


def _source(source: Section) -> SourceSpec:
    topics = source.texts("topics")
    for number, topic in enumerate(topics):
        if not TOPIC.fullmatch(topic):
            source.blame(f"topics[{number}]", f"{topic!r} cannot name a topic; use letters, digits, '.', '_' and '-'")
    pattern = source.text("pattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            source.blame("pattern", f"{pattern!r} is no regular expression: {error}")
    value = source.read("value", lambda section: read_value(section, topics[0] if len(topics) == 1 else None)) or ValueSpec()
    values = source.each("values", lambda section: read_value(section, section.path.rpartition(".")[2]))
    for name in values:
        if topics and name not in topics:
            source.blame(f"values.{name}", f"{name!r} is none of the topics; they are {', '.join(topics)}")
    options = source.settings("options")
    return SourceSpec(
        topics=topics,
        pattern=pattern,
        start=_position(source, "start") or Position(end=EARLIEST),
        end=_position(source, "end"),
        value=value,
        values=values,
        headers=source.flag("headers", False),
        skips_lost_data=source.text("lost_data", "fail", ("fail", "skip")) == "skip",
        files=source.read("files", _files),
        table=source.read("table", lambda section: read_table(section, options)),
        options=options,
    )


def _position(section: Section, name: str) -> Position | None:
    value = section.raw(name)
    if value is None:
        return None
    if value in ("earliest", "latest"):
        return Position(end=EARLIEST if value == "earliest" else LATEST)
    inner = section.section(name) if isinstance(value, Mapping) else None
    if inner is None or len(inner.names()) != 1 or inner.names()[0] not in ("time", "offsets"):
        section.blame(name, "it takes earliest, latest, {time: 2026-11-01T00:00:00Z} or {offsets: {topic: {0: 10}}}")
        return None
    if inner.has("time"):
        at_ms = _time_ms(inner.raw("time"))
        if at_ms is None:
            inner.blame("time", "it takes a time with its zone, such as 2026-11-01T00:00:00Z, or ms since 1970")
        return Position(timestamp_ms=at_ms)
    return Position(offsets=_offsets(inner))


def _time_ms(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value >= 0 else None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    if not isinstance(value, datetime):
        return None
    # What is read from YAML with a zone comes as UTC, with or without saying so.
    return int((value if value.tzinfo is not None else value.replace(tzinfo=UTC)).timestamp() * 1000)


def _offsets(inner: Section) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    topics = inner.section("offsets")
    for topic in topics.names() if topics is not None else ():
        assert topics is not None
        partitions = topics.section(topic)
        for partition in partitions.names() if partitions is not None else ():
            assert partitions is not None
            offset = partitions.raw(partition)
            if not partition.isdigit() or isinstance(offset, bool) or not isinstance(offset, int) or offset < EARLIEST:
                partitions.blame(partition, "it takes the number of a partition with an offset; -2 is earliest, -1 latest")
            else:
                offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def _files(files: Section) -> FilesSpec:
    files.require("path", "a file, a directory or a pattern")
    files.require("format", "it takes parquet, csv or json")
    form = files.text("format", choices=("parquet", "csv", "json")) or "parquet"
    delimiter = files.text("delimiter", ",") or ","
    if len(delimiter) != 1:
        files.blame("delimiter", f"it is {delimiter!r}; it takes one character")
    return FilesSpec(
        path=files.text("path") or "",
        format=form,
        schema=files.text("schema"),
        header=files.flag("header", True),
        delimiter=delimiter,
        options=files.settings("options"),
    )


def read_table(table: Section, options: Mapping[str, str]) -> TableSpec:
    """A table; `options` are those of the store that it is in."""
    table.require("format", "it takes delta, iceberg or parquet")
    form = table.text("format", choices=("delta", "iceberg", "parquet")) or "delta"
    location, name = table.text("location"), table.text("name")
    catalog = table.settings("catalog")
    if form == "iceberg":
        table.require("name", "an Iceberg table is found by its name in the catalog, such as db.clicks")
    elif location is None:
        table.require("location", "a directory, or an address such as s3://bucket/clicks")
    if form != "iceberg" and catalog:
        table.blame("catalog", f"only Iceberg tables have a catalog; this one is {form}")
    compact = table.section("compact")
    compact_every_s = compact.duration("every", 3600.0) if compact is not None else None
    file_bytes = compact.size("file_bytes", 128 << 20) if compact is not None else 128 << 20
    vacuum_after_s = table.read("vacuum", lambda section: section.duration("after", 7 * 86400.0))
    if compact is not None:
        compact.finish()
    return TableSpec(
        format=form,
        location=location,
        name=name,
        catalog=catalog,
        partition_by=table.texts("partition_by"),
        schema_evolution=table.text("schema_evolution", "add_columns", ("add_columns", "refuse")) or "add_columns",
        compact_every_s=compact_every_s,
        compact_file_bytes=file_bytes,
        vacuum_after_s=vacuum_after_s,
        metadata=_metadata(table),
        merge=table.read("merge", _merge),
        options=options,
    )


def _merge(merge: Section) -> MergeSpec:
    merge.require("key", "the columns that tell rows of the table apart")
    delete = merge.section("delete")
    column, values = (None, ()) if delete is None else (delete.text("column"), delete.texts("values"))
    if delete is not None:
        delete.require("column", "the column that says which rows delete")
        delete.finish()
    return MergeSpec(
        key=merge.texts("key"),
        order_by=merge.text("order_by"),
        delete_column=column,
        delete_values=values or DELETES,
        history=merge.flag("history", False),
    )


def _metadata(table: Section) -> tuple[str, ...]:
    """What of a record besides its value becomes columns."""
    given = table.texts("metadata")
    known = (*METADATA, "headers")
    for name in given:
        if name not in known and given != ("none",):
            table.blame("metadata", f"it has {name!r}; there are {', '.join(known)}, or none alone")
    return () if given == ("none",) else given or METADATA


def _transform(transform: Section, origin: Origin) -> TransformSpec:
    sql, python = transform.text("sql"), transform.raw("python")
    if (sql is None) == (python is None):
        transform.blame("", "give one of sql and python" if sql is None else "both sql and python are given; keep one of them")
    if isinstance(python, str) and not re.fullmatch(r".+\.py:[A-Za-z_]\w*", python):
        transform.blame("python", f"it is {python!r}; it takes FILE.py:FUNCTION, with the file beside this one")
    elif python is not None and not isinstance(python, str) and not callable(python):
        transform.blame("python", "it takes FILE.py:FUNCTION; in a file of Python also the function itself")
    given = transform.section("watermark")
    single, many = _watermarks(given) if given is not None else (None, {})
    return TransformSpec(
        sql=sql,
        python=python,
        watermark=single,
        watermarks=many,
        output_mode=transform.text("output_mode", "append", ("append", "update", "complete")) or "append",
        tables=transform.each("tables", lambda section: read_table(section, {})),
        state=transform.text("state", "auto", ("auto", "stateless", "stateful")) or "auto",
        checkpoint=transform.text("checkpoint"),
    )


def _watermarks(given: Section) -> tuple[Watermark | None, dict[str, Watermark]]:
    """One for all views, or one for each by its name."""
    single: Watermark | None = None
    by_view: dict[str, Watermark | None] = {}
    if given.has("column") or given.has("delay"):
        single = _watermark(given)
    else:
        by_view = {name: given.read(name, _watermark) for name in given.names()}
    given.finish()
    return single, {name: watermark for name, watermark in by_view.items() if watermark is not None}


def _watermark(section: Section) -> Watermark:
    section.require("column", "the column with the time of a row")
    section.require("delay", "how late a row may be, such as 10 minutes")
    delay = section.raw("delay", "0 seconds")
    seconds = duration_s(delay)
    if seconds is None:
        section.blame("delay", f"it is {delay!r}; it takes a duration such as 30s or 10 minutes")
    return Watermark(section.text("column") or "", f"{round((seconds or 0) * 1000)} milliseconds")


def _target(target: Section) -> TargetSpec:
    topic = target.text("topic")
    if topic is not None and not TOPIC.fullmatch(FAN_OUT.sub("x", topic)):
        target.blame("topic", f"{topic!r} cannot name a topic; use letters, digits, '.', '_' and '-'")
    options = target.settings("options")
    table = target.read("table", lambda section: read_table(section, options))
    partitions = target.whole("partitions", 1, least=1) if target.has("partitions") else target.raw("partitions")
    if topic is not None and table is not None:
        target.blame("table", "topic is given as well; keep one of them")
    if topic is None and options and table is None:
        target.blame("options", "they are for the store of a table, and there is none")
    return TargetSpec(topic, table, partitions)


def _dead_letters(top: Section, name: str) -> DeadLetterSpec:
    value = top.raw("dead_letters")
    if value is None:
        return DeadLetterSpec(topic=f"{name}.dead")
    if value == "stop":
        return DeadLetterSpec()
    if not isinstance(value, Mapping):
        top.blame("dead_letters", "it takes {topic: NAME}, {table: {...}} or stop")
        return DeadLetterSpec(topic=f"{name}.dead")
    letters = top.read("dead_letters", _dead_letter_target)
    assert letters is not None
    if letters.topic is None and letters.table is None:
        return replace(letters, topic=f"{name}.dead")
    return letters


def _dead_letter_target(section: Section) -> DeadLetterSpec:
    given = _target(section)
    return DeadLetterSpec(given.topic, given.table, section.share("share_max", 0.1))


def _trigger(top: Section) -> TriggerSpec:
    value = top.raw("trigger", "continuous")
    if value in ("continuous", "once"):
        return TriggerSpec(once=value == "once")
    if isinstance(value, Mapping):
        return TriggerSpec(every_s=top.read("trigger", lambda section: section.duration("every", None)))
    top.blame("trigger", f"it is {value!r}; it takes continuous, once or {{every: 5m}}")
    return TriggerSpec()


def _batch(batch: Section) -> tuple[int, int]:
    return batch.whole("rows_max", ROWS_MAX, least=1), batch.whole("tasks_min", 1, least=1)


def _restart(restart: Section) -> RestartSpec:
    return RestartSpec(restart.whole("attempts", 10, least=0), restart.duration("backoff", 5.0) or 5.0)
