"""Decodes records of Kafka's internal topics, `__consumer_offsets` and `__transaction_state`, as a Kafka broker writes them.

The topics of these names are empty in Penstock, which has offsets and transactions in tablets; this is for copies of another
cluster's. The key begins with the version of its type, the value with that of its own. Those of the types that a broker writes
with flexible versions only are shown by their keys.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from penstock.core.errors import InvalidRequestError

STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
_GROUP_KEYS: Final = {
    2: ("group metadata", ("group",)),
    3: ("consumer group metadata", ("group",)),
    4: ("consumer group partition metadata", ("group",)),
    5: ("consumer group member", ("group", "member")),
    6: ("consumer group target assignment", ("group",)),
    7: ("consumer group target assignment of a member", ("group", "member")),
    8: ("consumer group current assignment of a member", ("group", "member")),
}


class NotInternalError(InvalidRequestError):
    """The bytes are not a record of an internal topic."""

    code = "not_internal"


class _Fields:
    """Reads the fields of a record in their order."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._raw) - self._at

    def number(self, form: str) -> int:
        size = struct.calcsize(form)
        if self.left < size:
            raise NotInternalError("the bytes end within a field; are they of __consumer_offsets or __transaction_state?")
        (value,) = struct.unpack_from(">" + form, self._raw, self._at)
        self._at += size
        return int(value)

    def octets(self, length: int) -> bytes:
        if not 0 <= length <= self.left:
            raise NotInternalError(f"a field of {length} bytes is longer than the record; is it of an internal topic?")
        self._at += length
        return self._raw[self._at - length : self._at]

    def text(self) -> str | None:
        length = self.number("h")
        return None if length < 0 else self.octets(length).decode(errors="replace")

    def items(self, read: Callable[[], Any]) -> list[Any]:
        count = self.number("i")
        if count > self.left:
            raise NotInternalError(f"a list of {count} items is longer than the record; is it of an internal topic?")
        return [read() for _ in range(count)]


def decode_internal(key: bytes, value: bytes | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Decode a record. Raises NotInternalError if it is of another form, or of a version that is not known."""
    fields = _Fields(key)
    version = fields.number("h")
    decoded: dict[str, Any]
    read: Callable[[_Fields, int], dict[str, Any]]
    if version in (0, 1):
        decoded, read = {"type": "committed offset", "group": fields.text()}, _offset
        if fields.left:
            decoded |= {"topic": fields.text(), "partition": fields.number("i")}
        else:
            decoded, read = {"type": "transaction", "transactional_id": decoded["group"]}, _transaction
    elif version in _GROUP_KEYS:
        kind, names = _GROUP_KEYS[version]
        decoded, read = {"type": kind, **{name: fields.text() for name in names}}, _group if version == 2 else _undecoded
    else:
        raise NotInternalError(f"a key of version {version} is not of __consumer_offsets or __transaction_state")
    if fields.left:
        raise NotInternalError(f"{fields.left} bytes follow the key; is it of an internal topic?")
    if value is None:
        return decoded, None
    content = _Fields(value)
    value_version = content.number("h")
    return decoded, {"version": value_version, **read(content, value_version)}


def _offset(fields: _Fields, version: int) -> dict[str, Any]:
    if version > 3:
        return {"offset": fields.number("q"), "leader_epoch": fields.number("i")}
    offset: dict[str, Any] = {"offset": fields.number("q")}
    if version == 3:
        offset["leader_epoch"] = fields.number("i")
    offset |= {"metadata": fields.text(), "commit_timestamp": fields.number("q")}
    if version == 1:
        offset["expire_timestamp"] = fields.number("q")
    return offset


def _group(fields: _Fields, version: int) -> dict[str, Any]:
    if version > 3:
        return _undecoded(fields, version)
    group: dict[str, Any] = {
        "protocol_type": fields.text(),
        "generation": fields.number("i"),
        "protocol": fields.text(),
        "leader": fields.text(),
    }
    if version >= 2:
        group["state_timestamp"] = fields.number("q")

    def member() -> dict[str, Any]:
        described: dict[str, Any] = {"member": fields.text()}
        if version >= 3:
            described["instance"] = fields.text()
        described |= {"client": fields.text(), "host": fields.text()}
        if version >= 1:
            described["rebalance_timeout_ms"] = fields.number("i")
        described["session_timeout_ms"] = fields.number("i")
        fields.octets(fields.number("i"))  # the subscription
        fields.octets(fields.number("i"))  # the assignment
        return described

    group["members"] = fields.items(member)
    return group


def _transaction(fields: _Fields, version: int) -> dict[str, Any]:
    if version > 0:
        return _undecoded(fields, version)
    transaction: dict[str, Any] = {
        "producer_id": fields.number("q"),
        "producer_epoch": fields.number("h"),
        "timeout_ms": fields.number("i"),
    }
    state = fields.number("b")
    transaction["state"] = STATES[state] if 0 <= state < len(STATES) else state
    transaction["partitions"] = fields.items(
        lambda: {"topic": fields.text(), "partitions": fields.items(lambda: fields.number("i"))}
    )
    transaction |= {"update_timestamp": fields.number("q"), "start_timestamp": fields.number("q")}
    return transaction


def _undecoded(fields: _Fields, version: int) -> dict[str, Any]:
    return {"undecoded": fields.octets(fields.left).hex()}
