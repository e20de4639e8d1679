"""What an operator asks the leader to do: a key that a command creates and deletes, and that the leader answers. No I/O."""

from __future__ import annotations

import msgspec

from penstock.coordination.port import Entry
from penstock.core.errors import CorruptionError


class OperatorRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request by its kind and arguments. `is_done` once it was carried out, or could not be; `answer` says which, in words."""

    kind: str
    arguments: dict[str, str] = {}
    is_done: bool = False
    is_failed: bool = False
    answer: str = ""


def decode_request(entry: Entry) -> OperatorRequest:
    """A request as it was stored."""
    try:
        return msgspec.json.decode(entry.value, type=OperatorRequest)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"the key {entry.key} does not hold a request: {error}") from error
