"""The lease of this node: granted, renewed in time, and replaced when it was lost. Members and leaders put their keys under
it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.coordination.lease_clock import RETRY_S, LeaseClock, renewal_timeout_s
from penstock.coordination.port import NO_LEASE, KeyStore
from penstock.core.errors import PenstockError

log = logging.getLogger(__name__)

RETRY_S_MAX: Final = 2.0


class Session:
    """Keeps one lease alive. `on_granted` runs after each grant, before the lease is given out, to put what hangs on it."""

    def __init__(
        self, store: KeyStore, ttl_s: float, now: Callable[[], float], on_granted: Callable[[int], Awaitable[None]]
    ) -> None:
        self._store = store
        self._ttl_s = ttl_s
        self._now = now
        self._on_granted = on_granted
        self._lease = NO_LEASE
        self._clock: LeaseClock | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def lease(self) -> int:
        """The lease, for keys that are put now; 0 if there is none that we may believe in."""
        return self._lease if self.is_believed else NO_LEASE

    @property
    def is_believed(self) -> bool:
        """Whether the lease lives for certain, by our own clock."""
        return self._clock is not None and self._clock.is_believed(self._now())

    async def start(self) -> None:
        """Get the first lease, and keep it from then on. Raises what `on_granted` raises."""
        await self._grant()
        self._task = asyncio.create_task(self._keep(), name="coordination-session")

    async def close(self) -> None:
        """End the lease, so that others see at once that we are gone."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._clock = None
        if self._lease != NO_LEASE:
            try:
                await self._store.revoke(self._lease)
            except PenstockError as error:
                log.info("the lease of this node was not revoked and ends by itself: %s", error)

    async def _grant(self) -> None:
        sent_at = self._now()
        lease = await self._store.grant(self._ttl_s)
        await self._on_granted(lease.id)
        self._lease = lease.id
        self._clock = LeaseClock(lease.ttl_s, sent_at)

    async def _keep(self) -> None:
        while True:
            if self._clock is None:
                await self._grant_again()
                continue
            await asyncio.sleep(self._clock.wait_s(self._now()))
            await self._renew(self._clock)

    async def _renew(self, clock: LeaseClock) -> None:
        """Renew once. A lease that we stopped believing in is renewed as well: while the store is away it may outlive its
        time."""
        sent_at = self._now()
        try:
            ttl_s = await self._store.renew(self._lease, renewal_timeout_s(clock.ttl_s))
        except PenstockError as error:
            clock.note_failed(self._now())
            log.debug("the lease of this node was not renewed: %s", error)
            return
        if ttl_s > 0:
            clock.note_renewed(sent_at, ttl_s)
        else:
            log.warning("the lease of this node has ended; it registers again")
            self._clock = None

    async def _grant_again(self) -> None:
        wait_s = RETRY_S
        while self._clock is None:
            try:
                await self._grant()
            except PenstockError as error:
                log.warning("this node is not registered: %s", error)
                await asyncio.sleep(wait_s)
                wait_s = min(RETRY_S_MAX, wait_s * 2)
