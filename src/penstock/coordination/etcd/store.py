"""A `KeyStore` on etcd."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Final

from penstock.coordination.etcd.connection import EtcdCallError, EtcdConnection
from penstock.coordination.etcd.failures import Failure, error_of
from penstock.coordination.etcd.messages import COMPARE_EQUAL, COMPARE_MOD, message
from penstock.coordination.etcd.options import EtcdOptions
from penstock.coordination.etcd.watch import EtcdWatch, entry_of
from penstock.coordination.limits import check_transaction
from penstock.coordination.port import (
    UNKNOWN,
    Change,
    CommitResult,
    CompactedError,
    Compare,
    Event,
    Lease,
    Outcome,
    Position,
    Put,
    Snapshot,
)

PAGE_KEYS: Final = 500

_RANGE: Final = "/etcdserverpb.KV/Range"
_TXN: Final = "/etcdserverpb.KV/Txn"
_GRANT: Final = "/etcdserverpb.Lease/LeaseGrant"
_REVOKE: Final = "/etcdserverpb.Lease/LeaseRevoke"
_KEEP_ALIVE: Final = "/etcdserverpb.Lease/LeaseKeepAlive"


class EtcdStore:
    """The keys below one prefix of etcd."""

    def __init__(self, options: EtcdOptions, now: Callable[[], float], rng: random.Random) -> None:
        self._options = options
        self._prefix = options.prefix
        self._connection = EtcdConnection(options, now, rng)

    async def get(self, key: str) -> Snapshot:
        """Read one key."""
        response = await self._range(message("RangeRequest")(key=self._key(key)))
        return Snapshot(self._entries(response), _position(response))

    async def scan(self, prefix: str) -> Snapshot:
        """Read all keys with a prefix, in pages of one revision."""
        while True:
            try:
                return await self._list_once(prefix)
            except CompactedError:
                continue  # between two pages; the next listing is of a newer revision

    async def commit(self, compares: Sequence[Compare], changes: Sequence[Change]) -> CommitResult:
        """Apply a transaction. It is sent once."""
        check_transaction(compares, changes)
        request = message("TxnRequest")()
        for compare in compares:
            request.compare.add(
                result=COMPARE_EQUAL, target=COMPARE_MOD, key=self._key(compare.key), mod_revision=compare.revision
            )
        for change in changes:
            operation = request.success.add()
            if isinstance(change, Put):
                operation.request_put.key = self._key(change.key)
                operation.request_put.value = change.value
                operation.request_put.lease = change.lease
            else:
                operation.request_delete_range.key = self._key(change.key)
        try:
            response = await self._connection.ask_once(_TXN, request, message("TxnResponse"), self._options.call_s)
        except EtcdCallError as error:
            if error.failure is Failure.ELSEWHERE:
                return UNKNOWN
            if error.failure is Failure.NO_LEASE:
                return CommitResult(Outcome.REFUSED)
            raise error_of(error.failure, "a transaction", error.details) from error
        return CommitResult(Outcome.DONE if response.succeeded else Outcome.REFUSED, _position(response))

    async def watch(self, prefix: str, after: int) -> AsyncGenerator[tuple[Event, ...], None]:
        """Yield changes after a revision, from one endpoint until it fails."""
        watch = EtcdWatch(self._connection, self._prefix, prefix, after)
        try:
            async for events in watch.events(self._current_revision):
                yield events
        finally:
            watch.cancel()

    async def grant(self, ttl_s: float) -> Lease:
        """Create a lease; one whose answer was lost has no keys and ends by itself."""
        error: EtcdCallError | None = None
        for _ in self._options.endpoints:
            request = message("LeaseGrantRequest")(TTL=math.ceil(ttl_s))
            try:
                response = await self._connection.ask_once(_GRANT, request, message("LeaseGrantResponse"), self._options.call_s)
                return Lease(response.ID, float(response.TTL))
            except EtcdCallError as failed:
                error = failed
                if failed.failure is not Failure.ELSEWHERE:
                    break
        assert error is not None
        raise error_of(error.failure, "a lease was not granted", error.details) from error

    async def renew(self, lease: int, timeout_s: float) -> float:
        """Extend a lease, at one endpoint."""
        request = message("LeaseKeepAliveRequest")(ID=lease)
        try:
            response = await self._connection.ask_stream_once(_KEEP_ALIVE, request, message("LeaseKeepAliveResponse"), timeout_s)
        except EtcdCallError as error:
            if error.failure is Failure.NO_LEASE:
                return 0.0
            raise error_of(error.failure, "a lease was not renewed", error.details) from error
        return float(response.TTL)

    async def revoke(self, lease: int) -> None:
        """End a lease; one that has ended is as good."""
        request = message("LeaseRevokeRequest")(ID=lease)
        try:
            await self._connection.ask_once(_REVOKE, request, message("LeaseRevokeResponse"), self._options.call_s)
        except EtcdCallError as error:
            if error.failure is not Failure.NO_LEASE:
                raise error_of(error.failure, "a lease was not revoked", error.details) from error

    async def close(self) -> None:
        """Close connections."""
        await self._connection.close()

    async def _list_once(self, prefix: str) -> Snapshot:
        begin, end = self._key(prefix), prefix_end(self._key(prefix))
        entries: list[Any] = []
        position: Position | None = None
        while True:
            request = message("RangeRequest")(
                key=begin, range_end=end, limit=PAGE_KEYS, revision=position.revision if position is not None else 0
            )
            response = await self._range(request)
            position = position or _position(response)
            entries += self._entries(response)
            if not response.more:
                return Snapshot(tuple(entries), position)
            begin = response.kvs[-1].key + b"\0"

    async def _range(self, request: Any) -> Any:
        return await self._connection.ask(_RANGE, request, message("RangeResponse"))

    async def _current_revision(self) -> int:
        return (await self.get("")).position.revision

    def _key(self, key: str) -> bytes:
        return (self._prefix + key).encode()

    def _entries(self, response: Any) -> tuple[Any, ...]:
        return tuple(entry_of(kv, self._prefix) for kv in response.kvs)


def prefix_end(prefix: bytes) -> bytes:
    """The first key after all keys with a prefix; the prefix ends with no 0xFF, which UTF-8 does not have."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def _position(response: Any) -> Position:
    return Position(f"{response.header.cluster_id:016x}", response.header.revision)
