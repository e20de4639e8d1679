"""read_table: streams the rows of a static table chunk by chunk, so that a table is never all in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from yt.yson import to_yson_type

from penstock.broker import Chunk, Operation
from penstock.broker.namespace import Kind, Node
from penstock.gateway.yt.call import Call, Command, Reply
from penstock.gateway.yt.errors import GENERIC, YtError
from penstock.gateway.yt.formats import write_rows
from penstock.gateway.yt.permissions import check
from penstock.gateway.yt.row_batch import read_row_batch
from penstock.gateway.yt.row_reader import Row, table_rows
from penstock.gateway.yt.visible_nodes import node_at
from penstock.queue import split_batches

RANGES_MAX = 10_000


class RowRange(NamedTuple):
    """Row indexes begin <= index < end."""

    begin: int
    end: int


async def read_table(call: Call) -> Reply:
    """Stream all rows of a table, or those of some ranges."""
    path = call.path()
    node = node_at(call, path)
    if node.kind is not Kind.STATIC:
        raise YtError(
            GENERIC, f"{node.path} is not a static table; read a queue with pull-queue, any dynamic table with select-rows"
        )
    check(call, Operation.READ, node)
    count = int(call.cluster.attribute(node, "row_count"))
    ranges = _ranges(path.rich, count)
    columns = path.rich.get("columns")
    if columns is not None and not isinstance(columns, list):
        raise YtError(GENERIC, f"columns must be a list of names, not {columns!r}")
    parameters = {
        "start_row_index": ranges[0].begin if ranges else 0,
        "approximate_row_count": sum(max(rows.end - rows.begin, 0) for rows in ranges),
    }
    wanted = None if columns is None else {str(name) for name in columns}
    return Reply(stream=_encode_ranges(call, node, ranges, wanted), parameters=parameters)


async def _encode_ranges(call: Call, node: Node, ranges: list[RowRange], columns: set[str] | None) -> AsyncIterator[bytes]:
    format_ = call.output_format()
    control = call.mapping("control_attributes")
    for index, wanted in enumerate(ranges):
        control_rows: list[dict[str, int]] = []
        if control.get("enable_range_index"):
            control_rows.append({"range_index": index})
        if control.get("enable_row_index"):
            control_rows.append({"row_index": wanted.begin})
        if control_rows:
            yield write_rows(format_, [to_yson_type(None, attributes=entry) for entry in control_rows])
        async for rows in _rows(call, node, wanted):
            yield write_rows(format_, rows if columns is None else [_only(row, columns) for row in rows])


def _only(row: Row, columns: set[str]) -> Row:
    return {name: value for name, value in row.items() if name in columns}


async def _rows(call: Call, node: Node, wanted: RowRange) -> AsyncIterator[list[Row]]:
    """Read the rows of a range, batch by batch."""
    before = 0
    for chunk in call.cluster.broker.tables.chunks(node.id):
        if before < wanted.end and before + chunk.rows > wanted.begin:
            at = before
            async for rows in _chunk_rows(call, node, chunk):
                part = rows[max(wanted.begin - at, 0) : max(wanted.end - at, 0)]
                at += len(rows)
                if part:
                    yield part
        before += chunk.rows


async def _chunk_rows(call: Call, node: Node, chunk: Chunk) -> AsyncIterator[list[Row]]:
    codec = call.cluster.codec(node)
    for raw in split_batches(await call.cluster.broker.tables.read(node.id, chunk)):
        batch = read_row_batch(raw)
        if batch is not None:
            if call.cluster.subjects is not None and codec is not None:
                batch = await call.cluster.subjects.unframed(batch)
            yield table_rows(batch, batch.from_offset(chunk.first, len(batch.table)), codec)
            await asyncio.sleep(0)


def _ranges(rich: Mapping[str, Any], count: int) -> list[RowRange]:
    """The row ranges of a path; all rows by default."""
    ranges = rich.get("ranges")
    if ranges is None:
        ranges = [{key: rich[key] for key in ("lower_limit", "upper_limit", "exact") if key in rich}]
    if not isinstance(ranges, list) or len(ranges) > RANGES_MAX:
        raise YtError(GENERIC, f"ranges must be a list of at most {RANGES_MAX}")
    return [_range(limits, count) for limits in ranges]


def _range(limits: Any, count: int) -> RowRange:
    if not isinstance(limits, dict):
        raise YtError(GENERIC, f"a range must be a map of limits, not {limits!r}")
    if "exact" in limits:
        row = _row_index(limits["exact"], 0)
        return RowRange(row, min(row + 1, count))
    return RowRange(_row_index(limits.get("lower_limit"), 0), min(_row_index(limits.get("upper_limit"), count), count))


def _row_index(limit: Any, default: int) -> int:
    if limit is None or limit == {}:
        return default
    row = limit.get("row_index") if isinstance(limit, dict) else None
    if not isinstance(row, int) or isinstance(row, bool) or row < 0 or len(limit) > 1:
        raise YtError(GENERIC, f"a table that is not sorted is read by row_index, not by {limit!r}")
    return int(row)


COMMANDS = {"read_table": Command(read_table, output_type="tabular", is_heavy=True)}
