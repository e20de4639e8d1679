"""Status attributes of queues and consumers, as plain dictionaries. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from penstock.broker.namespace.node import object_id
from penstock.broker.registrations import Registration

Status = dict[str, Any]

TABLET_TYPE, CELL_TYPE = 702, 700
GENERIC_CODE, NOT_MOUNTED_CODE = 1, 1702


class Disposition(Enum):
    """The position of a consumer relative to the available rows."""

    EXPIRED = "expired"
    PENDING = "pending_consumption"
    UP_TO_DATE = "up_to_date"
    AHEAD = "ahead"


class StatusError(NamedTuple):
    """Why a status is not available."""

    code: int
    message: str
    attributes: Status

    def shown(self, now_ms: int, host: str) -> Status:
        """As statuses give it."""
        attributes = {"datetime": shown_time(now_ms), "host": host, **self.attributes}
        return {"error": {"code": self.code, "message": self.message, "attributes": attributes}}


class PartitionState(NamedTuple):
    """The state of a partition of a queue; weights are None if its rows have none."""

    lower: int
    upper: int
    last_commit_ms: int
    weight: int | None
    trimmed_weight: int | None
    rows: int  # between lower and upper, where markers of transactions may be as well


class ReadProgress(NamedTuple):
    """The progress of a consumer in a partition."""

    next_row: int
    consumed_ms: int
    next_row_commit_ms: int | None
    weight: int | None
    unread: int  # rows from there on; below zero if it stands beyond the end


def tablet_id(table: str, number: int) -> str:
    """The id of a partition of a table as a tablet."""
    return object_id(TABLET_TYPE, uuid5(NAMESPACE_URL, f"{table}/{number}").int)


def cell_id(name: str) -> str:
    """The id of the node as a tablet cell."""
    return object_id(CELL_TYPE, uuid5(NAMESPACE_URL, f"cell:{name}").int)


def not_mounted(tablet: str, state: str) -> StatusError:
    """The error for a partition that is not served."""
    return StatusError(GENERIC_CODE, f"Tablet {tablet} is not mounted", {"state": state})


def cannot_read(tablet: str, table: str, state: str) -> StatusError:
    """The error for a table of offsets that is not served."""
    message = f'Cannot read from tablet {tablet} of table #{table} while it is in "{state}" state'
    return StatusError(NOT_MOUNTED_CODE, message, {"tablet_id": tablet, "is_tablet_unmounted": True})


def registrations_shown(registrations: list[Registration]) -> list[Status]:
    """Registrations as both kinds of objects give them."""
    return [
        {"queue": str(registration.queue), "consumer": str(registration.consumer), "vital": registration.vital}
        for registration in registrations
    ]


def partition_shown(
    state: PartitionState, rates: tuple[dict[str, float], dict[str, float]], *, now_ms: int, cell: str, host: str
) -> Status:
    """One of `@queue_partitions`."""
    has_rows = state.upper > 0 and state.weight is not None
    available = state.weight - state.trimmed_weight if state.weight is not None and state.trimmed_weight is not None else None
    return {
        "meta": {"cell_id": cell, "host": host},
        "lower_row_index": state.lower,
        "upper_row_index": state.upper,
        "available_row_count": state.rows,
        "cumulative_data_weight": state.weight if has_rows else None,
        "trimmed_data_weight": state.trimmed_weight if has_rows else None,
        "available_data_weight": available if has_rows else None,
        "last_row_commit_time": shown_time(max(state.last_commit_ms, 0)),
        "commit_idle_time": now_ms - max(state.last_commit_ms, 0),
        "write_row_count_rate": rates[0],
        "write_data_weight_rate": rates[1],
    }


def disposition(next_row: int, lower: int, unread: int) -> Disposition:
    """The state of a consumer at this next row, with so many rows before it."""
    if next_row < lower:
        return Disposition.EXPIRED
    if unread > 0:
        return Disposition.PENDING
    return Disposition.UP_TO_DATE if unread == 0 else Disposition.AHEAD


def reading_shown(
    progress: ReadProgress, state: PartitionState, rates: tuple[dict[str, float], dict[str, float]], *, now_ms: int
) -> Status:
    """One of `@queue_consumer_partitions`."""
    unread_weight = state.weight - progress.weight if state.weight is not None and progress.weight is not None else None
    commit_ms = progress.next_row_commit_ms
    return {
        "next_row_index": progress.next_row,
        "unread_row_count": progress.unread,
        "unread_data_weight": unread_weight,
        "cumulative_data_weight": progress.weight,
        "disposition": disposition(progress.next_row, state.lower, progress.unread).value,
        "last_consume_time": shown_time(progress.consumed_ms),
        "consume_idle_time": now_ms - progress.consumed_ms,
        "next_row_commit_time": None if commit_ms is None else shown_time(commit_ms),
        "processing_lag": 0 if commit_ms is None else max(now_ms - commit_ms, 0),
        "read_row_count_rate": rates[0],
        "read_data_weight_rate": rates[1],
    }


def shown_time(milliseconds: int) -> str:
    """A time as the seed writes it."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
