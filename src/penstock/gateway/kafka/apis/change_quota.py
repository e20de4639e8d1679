"""The quota for creating, growing and deleting topics, counted in partitions."""

from __future__ import annotations

from typing import Protocol

from penstock.broker.quotas import CHANGES_QUOTA, QuotaExceededError
from penstock.gateway.kafka.call import Call


class _ThrottledResponse(Protocol):
    throttle_time_ms: int


class ChangeQuota:
    """The quota as one request uses it. Newer clients are refused once it is exceeded; older ones are throttled afterwards."""

    def __init__(self, call: Call, strict_from: int) -> None:
        quotas = call.node.broker.quotas
        self._peer = call.peer
        self._limit = quotas.limit(CHANGES_QUOTA, call.user, call.client_id) if quotas.limits_changes else None
        self._is_strict = call.version >= strict_from

    def draw(self, partitions: int) -> None:
        """Counts partitions that are about to change. Raises QuotaExceededError if the quota is exceeded."""
        if self._limit is None:
            return
        wait_ms = self._limit.wait_ms()
        if wait_ms and self._is_strict:
            raise QuotaExceededError(f"the quota for changes of partitions is used up; try again in {wait_ms} ms")
        self._limit.draw(partitions)

    def settle(self, response: _ThrottledResponse) -> None:
        """Throttles the client if it exceeded the quota."""
        wait_ms = 0 if self._limit is None else self._limit.wait_ms()
        if wait_ms:
            response.throttle_time_ms = wait_ms
            self._peer.mute(wait_ms / 1000)
