"""What a transaction may be, checked before it is sent, so that it is refused alike by every store and with a clear reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.coordination.port import OPERATIONS_MAX, REQUEST_BYTES_MAX, Change, Compare, Put
from penstock.core.errors import InvalidRequestError

OPERATION_BYTES: Final = 64
"""What a compare or a change takes on the wire beside its key and value, and more than it does."""


def transaction_bytes(compares: Sequence[Compare], changes: Sequence[Change]) -> int:
    """About how many bytes a transaction takes on the wire, never less than it does for keys of up to 128 bytes of prefix."""
    keys = sum(len(operation.key.encode()) + OPERATION_BYTES + 128 for operation in (*compares, *changes))
    return keys + sum(len(change.value) for change in changes if isinstance(change, Put))


def check_transaction(compares: Sequence[Compare], changes: Sequence[Change]) -> None:
    """InvalidRequestError if a store would refuse the transaction whatever it holds."""
    if max(len(compares), len(changes)) > OPERATIONS_MAX:
        raise InvalidRequestError(
            f"a transaction of {len(compares)} compares and {len(changes)} changes; at most {OPERATIONS_MAX} of each are allowed:"
            " split it into several"
        )
    size = transaction_bytes(compares, changes)
    if size > REQUEST_BYTES_MAX:
        raise InvalidRequestError(
            f"a transaction of {size} bytes; at most {REQUEST_BYTES_MAX} are allowed: split it into several"
        )
    keys = [change.key for change in changes]
    if len(set(keys)) < len(keys):
        raise InvalidRequestError("a transaction changes a key twice; each may be changed once")
