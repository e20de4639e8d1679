"""Keeps a copy of all keys up to date: lists once, watches from there, resumes where a watch broke, lists again when it must."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from penstock.coordination.guarded_store import GuardedStore
from penstock.coordination.identity import ClusterIdentity, check_position, decode_identity
from penstock.coordination.key_layout import IDENTITY
from penstock.coordination.key_mirror import KeyChange, KeyMirror
from penstock.coordination.port import (
    CompactedError,
    CoordinationRefusedError,
    CoordinationUnavailableError,
    RolledBackError,
    Snapshot,
)
from penstock.core.errors import PenstockError
from penstock.core.periodic import report_defect

log = logging.getLogger(__name__)

CANNOT_FOLLOW: Final = "the keys of the cluster cannot be followed; they are listed again"
RETRY_S: Final = 0.05
RETRY_S_MAX: Final = 1.0


class Follower:
    """Applies what the store tells to a `KeyMirror`, and calls `on_changes` with what became different.

    `on_accepted` is called when a store that was rolled back is used again: revisions known from before it mean nothing in it.
    """

    def __init__(
        self,
        store: GuardedStore,
        mirror: KeyMirror,
        identity: ClusterIdentity,
        on_changes: Callable[[list[KeyChange]], None],
        on_accepted: Callable[[], None],
    ) -> None:
        self._store = store
        self._mirror = mirror
        self._on_changes = on_changes
        self._on_accepted = on_accepted
        self.identity = identity
        self._must_list = True
        self.listings = 0

    async def run(self) -> None:
        """Follow until cancelled. A store that is away is waited for; one that was rolled back is waited for without using it."""
        retry_s = RETRY_S
        while True:
            before = self._mirror.revision
            try:
                await self._follow()
            except CompactedError as error:
                log.info("listing all keys again: %s", error)
                self._must_list = True
            except RolledBackError as error:
                log.error("%s", error)
                self._store.note_rolled_back(str(error))
                await self._wait_for_recovery()
            except (CoordinationUnavailableError, CoordinationRefusedError) as error:
                log.debug("the watch ended: %s", error)
                retry_s = RETRY_S if self._mirror.revision > before else min(RETRY_S_MAX, retry_s * 2)
                await asyncio.sleep(retry_s)
            except PenstockError:
                log.exception(CANNOT_FOLLOW)
                self._must_list = True
                await asyncio.sleep(RETRY_S_MAX)
            except Exception as error:  # noqa: BLE001 - it is reported
                report_defect(CANNOT_FOLLOW, error)
                self._must_list = True
                await asyncio.sleep(RETRY_S_MAX)

    async def list_all(self) -> None:
        """List all keys and take them over."""
        snapshot = await self._store.scan("")
        self._mirror.check_listing(snapshot)
        self._apply_listing(snapshot)

    async def _follow(self) -> None:
        if self._must_list:
            await self.list_all()
        else:
            await self._check_resume()
        async with aclosing(self._store.watch("", self._mirror.revision)) as watch:
            async for events in watch:
                self._tell(self._mirror.apply_events(events))

    async def _check_resume(self) -> None:
        """Check that the changes after those we saw are of the same history: the watch itself would not tell that the store was
        restored and has come past that revision again."""
        snapshot = await self._store.scan("")
        identity = self._check_identity(snapshot)
        if identity.recoveries > self.identity.recoveries:
            self._accept(snapshot)
        else:
            self._mirror.check_listing(snapshot)

    async def _wait_for_recovery(self) -> None:
        """Wait until the store is back as it was, or was brought up to date on purpose."""
        while True:
            try:
                snapshot = await self._store.inner.scan("")
                if self._check_identity(snapshot).recoveries <= self.identity.recoveries:
                    if self._store.position is not None:
                        check_position(snapshot.position, self._store.position)
                    self._mirror.check_listing(snapshot)
                return self._accept(snapshot)
            except PenstockError as error:
                log.debug("still waiting: %s", error)
            await asyncio.sleep(RETRY_S_MAX)

    def _accept(self, snapshot: Snapshot) -> None:
        """Use the store as it is from now on; what was known of its revisions is forgotten."""
        self._store.accept(snapshot.position)
        self._on_accepted()
        self._apply_listing(snapshot)

    def _apply_listing(self, snapshot: Snapshot) -> None:
        """Take over a listing, unless it shows that the store no longer holds our cluster: then the copy stays as it was."""
        self.identity = self._check_identity(snapshot)
        self.listings += 1
        self._must_list = False
        self._tell(self._mirror.apply_listing(snapshot))

    def _check_identity(self, snapshot: Snapshot) -> ClusterIdentity:
        """The identity in a listing, which must be that of our cluster."""
        entry = next((entry for entry in snapshot.entries if entry.key == IDENTITY), None)
        identity = decode_identity(entry) if entry is not None else None
        if identity is not None and identity.cluster_id == self.identity.cluster_id:
            return identity
        held = "no cluster of this name" if identity is None else f"cluster {identity.cluster_id}"
        raise self._store.note_rolled_back(
            f"the store held cluster {self.identity.cluster_id} and now holds {held}: it was emptied or replaced"
        )

    def _tell(self, changes: list[KeyChange]) -> None:
        if changes:
            for change in changes:
                if change.key == IDENTITY and change.after is not None:
                    self.identity = decode_identity(change.after)
            self._on_changes(changes)
