"""Checks of the attributes that users set. One that means something to YT and would have no effect here is refused; any other is
the user's own, and is stored and returned."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from penstock.broker.namespace import Kind
from penstock.broker.queue_agent import DESTINATION, EXPIRATION, EXPORTS, exports_of
from penstock.gateway.yt.attributes import TREAT_AS, is_builtin
from penstock.gateway.yt.call import parse_flag
from penstock.gateway.yt.errors import GENERIC, YtError

SECOND_MS: Final = 1000
# Attributes that only say how to create a table; later they are computed from the table.
_CREATE_ONLY: Final = frozenset({"dynamic", "schema", "tablet_count", "pivot_keys"})
_TRIM_CONFIG: Final = "auto_trim_config"
_AGES: Final = frozenset({"min_data_ttl", "max_data_ttl"})
_VERSIONS: Final = {"min_data_versions": (0, 1), "max_data_versions": (1,)}
_ROWS_KEPT: Final = "row_count_to_keep"
_ONLY: Final = {
    EXPORTS: Kind.QUEUE,
    DESTINATION: Kind.FOLDER,
    EXPIRATION: Kind.STATIC,
    **dict.fromkeys((_TRIM_CONFIG, _ROWS_KEPT, *_AGES, *_VERSIONS), Kind.QUEUE),
}
_BY_RULES: Final = "access rules are about topics and groups, as for Kafka's clients; use `penstock access allow`"
_BY_STORAGE: Final = "where and in how many copies rows are stored is decided by the node's settings `disks` and `erasure`"
_WITHOUT_EFFECT: Final = {
    **dict.fromkeys(("acl", "inherit_acl", "effective_acl", "acl_subject_tags"), _BY_RULES),
    **dict.fromkeys(("erasure_codec", "hunk_erasure_codec", "media", "primary_medium", "hunk_primary_medium"), _BY_STORAGE),
    "expiration_timeout": f"nodes do not go for not being used; rows go by {_TRIM_CONFIG} or max_data_ttl, exported tables by "
    f"{EXPIRATION}",
}
# What clients may say when they create a table, since it is so.
_ALWAYS: Final = {"account": "default", "atomicity": "full", "in_memory_mode": "none", "replication_factor": 1}


def check_new_attributes(kind: Kind, attributes: dict[str, Any]) -> dict[str, Any]:
    """Check the attributes that a node is created with. Returns the values to store."""
    if "pivot_keys" in attributes:
        raise YtError(GENERIC, "pivot_keys have no effect here: a queue is divided by tablet_count, other tables have one tablet")
    if kind is not Kind.QUEUE and attributes.get("tablet_count", 1) != 1:
        raise YtError(GENERIC, f"tablet_count has no effect here: a {kind.value} has one tablet")
    checked = {}
    for name, value in attributes.items():
        if name == "schema":
            checked[name] = value
        elif name in _CREATE_ONLY or (name in _ALWAYS and value == _ALWAYS[name]):
            continue
        elif name in _ALWAYS:
            raise YtError(GENERIC, f"{name} is always {_ALWAYS[name]!r} here, so it cannot be {value!r}")
        else:
            checked[name] = check_attribute(kind, name, value)
    return checked


def check_attribute(kind: Kind, name: str, value: Any) -> Any:
    """Check an attribute that is set on a kind of node. Returns the value to store."""
    if is_builtin(name):
        raise YtError(GENERIC, f'Builtin attribute "{name}" cannot be set')
    only = _ONLY.get(name, kind)
    if kind is not only:
        raise YtError(GENERIC, f"{name} has no effect here: it is an attribute of a {only.value}")
    if name in _WITHOUT_EFFECT:
        raise YtError(GENERIC, f"{name} has no effect here, so it cannot be set: {_WITHOUT_EFFECT[name]}")
    if name in TREAT_AS:
        return parse_flag(value, name)
    if name == EXPORTS:
        return _check_exports(value)
    if name == DESTINATION:
        owner = value.get("originating_queue_id") if isinstance(value, dict) else None
        if not isinstance(owner, str):
            raise YtError(GENERIC, f"{DESTINATION} must be a map with the originating_queue_id, not {value!r}")
        return {"originating_queue_id": str(owner)}
    if name == EXPIRATION:
        return _milliseconds(value)
    if name == _TRIM_CONFIG:
        return _check_trim_config(value)
    if name in _VERSIONS:
        return _check_versions(name, value)
    if name == _ROWS_KEPT or name in _AGES:
        return _count(name, value)
    return value


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise YtError(GENERIC, f"{name} must be a number from 0 on, not {value!r}")
    return int(value)


def _check_versions(name: str, value: Any) -> int:
    """A row of a queue has one version: nothing but whether it is always kept can be chosen."""
    allowed = _VERSIONS[name]
    if _count(name, value) not in allowed:
        choice = " or ".join(map(str, allowed))
        raise YtError(GENERIC, f"{name} must be {choice} for a queue, whose rows have one version each, not {value!r}")
    return int(value)


def _check_exports(value: Any) -> dict[str, Any]:
    """Check an export configuration. Returns it in plain values."""
    exports_of(value)
    plain: dict[str, dict[str, Any]] = {}
    for name, export in value.items():
        settings = plain[str(name)] = {}
        for key, setting in export.items():
            settings[str(key)] = (
                setting if isinstance(setting, bool) else int(setting) if isinstance(setting, int) else str(setting)
            )
    return plain


def _milliseconds(value: Any) -> int:
    """A time sent as text or as milliseconds since the epoch."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return int(value)
    try:
        return int(datetime.fromisoformat(str(value)).replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError as error:
        raise YtError(GENERIC, f"{EXPIRATION} must be a time, such as 2030-01-31T00:00:00Z, not {value!r}") from error


def _check_trim_config(value: Any) -> dict[str, Any]:
    known = {"enable", "retained_rows", "retained_lifetime_duration"}
    if not isinstance(value, dict) or set(value) - known:
        raise YtError(GENERIC, f"{_TRIM_CONFIG} must be a map of {', '.join(sorted(known))}, not {value!r}")
    checked: dict[str, Any] = {"enable": parse_flag(value.get("enable", False), "enable")}
    for name in ("retained_rows", "retained_lifetime_duration"):
        number = value.get(name)
        if number is not None:
            checked[name] = _count(name, number)
    if checked.get("retained_lifetime_duration", 0) % SECOND_MS:
        raise YtError(GENERIC, "retained_lifetime_duration must be a whole number of seconds, in milliseconds")
    return checked
