"""Parses `static_export_config` of a queue: the directory, schedule and table names of its exports. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol

from cronsim import CronSim, CronSimError

from penstock.broker.namespace.node import check_path
from penstock.core.errors import InvalidRequestError

PATTERN_DEFAULT = "%UNIX_TS-%PERIOD"
SECOND_MS = 1000
EXPORTS_MAX = 100  # of one queue
NAME_SIZE_MAX = 200
_KEYS = frozenset(
    {
        "export_directory",
        "export_period",
        "export_cron_schedule",
        "cron",
        "export_ttl",
        "output_table_name_pattern",
        "use_upper_bound_for_table_names",
    }
)
_OWN_NAMES = re.compile("%(UNIX_TS|PERIOD|ISO)")
_NOT_IN_NAME = re.compile(r"[/@&*#\[\]{}<>\0-\x1f]")


class InvalidExportError(InvalidRequestError):
    """The configuration of an export is invalid."""

    code = "invalid_export"


class Fragment(NamedTuple):
    """The period of one table: its bounds in Unix seconds."""

    begin_s: int
    end_s: int


class Schedule(Protocol):
    """When tables are made."""

    def last(self, now_s: float) -> Fragment:
        """The last completed period."""
        ...


class PeriodSchedule(NamedTuple):
    """Every so many seconds, counted from the epoch."""

    period_s: int

    def last(self, now_s: float) -> Fragment:
        """The last completed period."""
        end_s = int(now_s) // self.period_s * self.period_s
        return Fragment(end_s - self.period_s, end_s)


class CronSchedule(NamedTuple):
    """As a line of cron says, with or without a field for seconds in front, in UTC."""

    line: str

    def last(self, now_s: float) -> Fragment:
        """The last completed period."""
        # It finds what is strictly before a moment.
        moments = CronSim(self.line, datetime.fromtimestamp(int(now_s), UTC) + timedelta(seconds=1), reverse=True)
        end_s, begin_s = (int(next(moments).timestamp()) for _ in range(2))
        return Fragment(begin_s, end_s)


class ExportConfig(NamedTuple):
    """One export of a queue."""

    name: str
    directory: str
    schedule: Schedule
    ttl_ms: int | None = None
    pattern: str = PATTERN_DEFAULT
    names_upper_bound: bool = False

    def table_name(self, fragment: Fragment) -> str:
        """The table name of a period. Raises InvalidExportError if it is not a valid name."""
        named_s = fragment.end_s if self.names_upper_bound else fragment.begin_s
        moment = datetime.fromtimestamp(named_s, UTC)
        own = {"UNIX_TS": str(named_s), "PERIOD": str(fragment.end_s - fragment.begin_s), "ISO": moment.strftime("%FT%TZ")}
        name = moment.strftime(_OWN_NAMES.sub(lambda match: own[match[1]], self.pattern))
        if not name or len(name.encode()) > NAME_SIZE_MAX or _NOT_IN_NAME.search(name):
            raise InvalidExportError(f"{name!r}, of the pattern {self.pattern!r}, cannot be the name of a table")
        return name


def exports_of(given: Any) -> list[ExportConfig]:
    """Parse the exports of a configuration. Raises InvalidExportError if it is invalid."""
    if given is None:
        return []
    if not isinstance(given, Mapping) or len(given) > EXPORTS_MAX:
        raise InvalidExportError(
            'static_export_config is a map of names, as in {daily={export_directory="//tmp/daily";export_period=86400000}}, '
            f"with at most {EXPORTS_MAX} of them"
        )
    configs = [_export(str(name), fields) for name, fields in given.items()]
    directories = [config.directory for config in configs]
    if len(set(directories)) < len(directories):
        raise InvalidExportError("two exports of a queue cannot share a directory: their progress is kept in it")
    return configs


def _export(name: str, given: Any) -> ExportConfig:
    if not isinstance(given, Mapping) or set(given) - _KEYS:
        unknown = sorted(set(given) - _KEYS) if isinstance(given, Mapping) else given
        raise InvalidExportError(f"export {name!r} is a map of {', '.join(sorted(_KEYS))}, not with {unknown!r}")
    directory = given.get("export_directory")
    if not isinstance(directory, str):
        raise InvalidExportError(f"export {name!r} has no export_directory")
    check_path(directory)
    config = ExportConfig(
        name,
        str(directory),
        _schedule(name, given),
        _whole(given, "export_ttl") or None,
        str(given.get("output_table_name_pattern", PATTERN_DEFAULT)),
        given.get("use_upper_bound_for_table_names", False) in (True, "true"),
    )
    config.table_name(Fragment(0, 1))
    return config


def _schedule(name: str, given: Mapping[str, Any]) -> Schedule:
    lines = [given[key] for key in ("export_cron_schedule", "cron") if given.get(key) is not None]
    period_ms = _whole(given, "export_period")
    if len(lines) + (period_ms is not None) != 1:
        raise InvalidExportError(f"export {name!r} needs either an export_period in milliseconds or an export_cron_schedule")
    if period_ms is not None:
        if period_ms <= 0 or period_ms % SECOND_MS:
            raise InvalidExportError(f"export_period is a number of milliseconds that make whole seconds, not {period_ms}")
        return PeriodSchedule(period_ms // SECOND_MS)
    return _cron(str(lines[0]))


def _cron(line: str) -> CronSchedule:
    schedule = CronSchedule(line)
    try:
        schedule.last(0)
    except (CronSimError, StopIteration) as error:
        raise InvalidExportError(f"{line!r} is no schedule of cron: {error}") from error
    return schedule


def _whole(given: Mapping[str, Any], key: str) -> int | None:
    value = given.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidExportError(f"{key} is a number from 0 on, not {value!r}")
    return int(value)
