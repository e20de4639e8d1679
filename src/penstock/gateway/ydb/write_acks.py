"""Encodes acknowledgements to a writer, one per message, with a compiled kernel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.gateway.ydb.protos import Status, topic
from penstock.gateway.ydb.wire import number
from penstock.kernels.ack_pack import ACK_BYTES_MAX, pack_acks
from penstock.queue import WriteResult

Seqnos = npt.NDArray[np.int64]

_Response = topic.StreamWriteMessage.WriteResponse
_Ack = _Response.WriteAck
_SKIPPED: Final[bytes] = _Ack(skipped={"reason": _Ack.Skipped.REASON_ALREADY_WRITTEN}).SerializeToString()
_IN_TRANSACTION: Final[bytes] = _Ack(written_in_tx={}).SerializeToString()
_BEGINNING: Final = b"\x08" + number(Status.SUCCESS) + b"\x22"
NO_OFFSETS: Final = -1


def write_response(
    seqnos: Seqnos, skipped: int, results: Iterable[tuple[int, WriteResult]], *, partition: int, waited_s: float
) -> bytes:
    """The answer to a request: how many of its messages were written before, and what became of the batches that it was made
    into, by the number of messages of each. What is in none of them is written when its transaction is committed."""
    parts = [_packed(seqnos[:skipped], NO_OFFSETS, _SKIPPED)]
    at = skipped
    for count, result in results:
        parts.append(_packed(seqnos[at : at + count], NO_OFFSETS if result.duplicate else result.base_offset, _SKIPPED))
        at += count
    parts.append(_packed(seqnos[at:], NO_OFFSETS, _IN_TRANSACTION))
    rest = _Response(partition_id=partition)
    rest.write_statistics.persisting_time.FromNanoseconds(int(waited_s * 1e9))
    parts.append(rest.SerializeToString())
    return b"".join((_BEGINNING, number(sum(map(len, parts))), *parts))


def _packed(seqnos: Seqnos, base_offset: int, instead: bytes) -> memoryview:
    out = np.empty(len(seqnos) * ACK_BYTES_MAX, np.uint8).data
    return out[: pack_acks(seqnos.view(np.uint64), base_offset, instead, out)]
