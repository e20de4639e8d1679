"""FindPieces: returns where in the files a partition's batches are, so that a reader on the same machine reads them itself.

A reader opens the files at once, and an open file outlives its deletion. If a file is gone because its blobs were moved, or the
reader is on another machine, it fetches instead. Leases keep messages from being deleted before they are read.
"""

from __future__ import annotations

import os

from penstock.blob import FilePiece
from penstock.broker import Operation
from penstock.broker.quotas import FETCH_QUOTA
from penstock.core.errors import PenstockError
from penstock.gateway.kafka.apis.topic_lookup import find_topic, topic_code
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.security.authorization import may_topic
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.fetch import AbortedTransaction
from penstock.kafka.protocol.private_reads import FindPiecesRequest, FindPiecesResponse, FoundPiece
from penstock.queue import Partition

READ_COMMITTED = 1


async def find_pieces(call: Call, request: FindPiecesRequest) -> FindPiecesResponse:
    """Where batches are, as far as they are in files only. Clients with a quota are left to fetch, where it is kept."""
    node = call.node
    if node.access is not None and not may_topic(call, Operation.READ, request.topic_id):
        return FindPiecesResponse(error_code=errors.TOPIC_AUTHORIZATION_FAILED)
    quotas = node.broker.quotas
    if quotas.limits_fetch and quotas.limit(FETCH_QUOTA, call.user, call.client_id) is not None:
        return FindPiecesResponse()
    try:
        partition = node.broker.partition(find_topic(node, request.topic_id), request.partition)
        return await _find(partition, request, node.options.fetch_bytes_max)
    except PenstockError as error:
        return FindPiecesResponse(error_code=topic_code(error))


async def _find(partition: Partition, request: FindPiecesRequest, bytes_most: int) -> FindPiecesResponse:
    is_committed = request.isolation_level == READ_COMMITTED
    until = partition.stable_offset if is_committed else partition.end_offset
    if not partition.start_offset <= request.offset < until:
        return FindPiecesResponse()
    read = await partition.read(request.offset, max(min(request.bytes_max, bytes_most), 1), until=until, files=None)
    pieces = [_place(piece) for piece in read.batches if isinstance(piece, FilePiece)]
    if len(pieces) < len(read.batches) or None in pieces:
        return FindPiecesResponse()
    aborted = partition.aborted_between(request.offset, read.next_offset) if is_committed else []
    return FindPiecesResponse(
        next_offset=read.next_offset,
        aborted_transactions=[
            AbortedTransaction(producer_id=transaction.producer_id, first_offset=transaction.first_offset)
            for transaction in aborted
        ],
        pieces=[piece for piece in pieces if piece is not None],
    )


def _place(piece: FilePiece) -> FoundPiece | None:
    """The name of an open file; None where the system does not tell it, or it is deleted already."""
    try:
        path, status = os.readlink(f"/proc/self/fd/{piece.fd}"), os.fstat(piece.fd)
    except OSError:
        return None
    if status.st_nlink == 0:
        return None
    return FoundPiece(path=path, inode=status.st_ino, position=piece.offset, length=piece.length)
