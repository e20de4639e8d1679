"""A system tablet of the broker: booted, watched, and rebooted with a new generation when it stops.

A table holds the `SystemTablet`, and its calls go to the generation that serves. A component that also caches state in memory
registers a hook by `on_restart`; the hook reloads the state from each new generation before that serves, because a request that
failed on the old one may still have been committed. A state machine whose requests may outlive a restart works on one `KvTablet`
and is replaced with the next, so that what is left of it is fenced together with its tablet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Protocol

from penstock.blob import TabletStorage
from penstock.broker.errors import SystemTabletUnavailableError
from penstock.core.clock import Clock
from penstock.core.errors import ClosedError, FencedError, PenstockError
from penstock.tablet import DamagedTabletError, KvTablet, Request, Result, TabletProbe

log = logging.getLogger(__name__)

RETRY_FIRST_S = 0.05
RETRY_MAX_S = 5.0
STEADY_S = 10.0  # after serving this long, the restart backoff is reset

CONTENTS = {
    2: "topics, users, access rules and quotas",
    3: "positions of consumers, groups, leases and registrations",
    4: "transactions",
    5: "the tree of queues and consumers",
    6: "sequences of streams",
    7: "payloads of streams",
    8: "exported tables",
    9: "answers to YT clients",
}
"""What is in each system tablet, in words."""

OnRestart = Callable[[KvTablet], Awaitable[None]]


class TableTablet(Protocol):
    """The interface of the tablet behind a broker table, implemented by KvTablet and SystemTablet."""

    @property
    def generation(self) -> int:
        """The generation of the tablet."""
        ...

    async def execute(self, request: Request) -> list[Result]:
        """Carry out a request."""
        ...

    def head(self, key: bytes) -> bytes | None:
        """What a key keeps in memory."""
        ...

    def keys(self, begin: bytes, end: bytes | None) -> Iterator[bytes]:
        """Keys with begin <= key < end as they are now."""
        ...


class SystemTablet:
    """Make it with `start`; `stop` it when done. While no generation serves, every call fails with a retriable error."""

    def __init__(
        self,
        storage: TabletStorage,
        tablet: KvTablet,
        *,
        clock: Clock,
        random: Random,
        probe: TabletProbe | None = None,
        on_fenced: Callable[[], None] | None = None,
    ) -> None:
        self._on_fenced = on_fenced
        self._probe = probe
        self._storage = storage
        self._clock = clock
        self._random = random
        self._hooks: list[OnRestart] = []
        self._watchers: list[Callable[[Request], None]] = []
        self.latest = tablet  # the newest generation, though it may have stopped or may not serve yet
        self._serving: KvTablet | None = tablet
        self._keeper = asyncio.create_task(self._keep(), name=f"tablet-{tablet.id}-keeper")

    @classmethod
    async def start(
        cls,
        storage: TabletStorage,
        *,
        clock: Clock,
        random: Random,
        probe: TabletProbe | None = None,
        give_up: bool = False,
        on_fenced: Callable[[], None] | None = None,
    ) -> SystemTablet:
        """Boot the tablet. Raises what KvTablet.boot raises; only from then on it is started again and again. With `give_up`, it
        is started without what is lost of it. With `on_fenced`, which is called then, it is not started again when another node
        has taken it over."""
        try:
            tablet = await _boot(storage, random, probe, give_up=give_up)
        except DamagedTabletError as error:
            number = storage.info.tablet
            raise DamagedTabletError(
                f"system tablet {number} ({CONTENTS.get(number, 'a table of the broker')}) is damaged, and the node does not "
                f"start without it: {error}; put back a copy of the disk, or start once with --give-up-tablets {number} to "
                "go on without what is lost (give_up_tablets)"
            ) from error
        return cls(storage, tablet, clock=clock, random=random, probe=probe, on_fenced=on_fenced)

    def on_restart(self, hook: OnRestart) -> None:
        """Call `hook` with each further generation before it serves, after those that asked earlier. If it fails, the generation
        is given up and the next is tried."""
        self._hooks.append(hook)

    def watch(self, watcher: Callable[[Request], None]) -> None:
        """Call `watcher` with each request that was carried out by `execute`, in their order."""
        self._watchers.append(watcher)

    @property
    def generation(self) -> int:
        """The generation that serves, or served last."""
        return self.latest.generation

    @property
    def serves(self) -> bool:
        """Whether a generation serves here. Another node that starts one fences this one."""
        return self._serving is not None and not self._serving.stopped.is_set()

    async def execute(self, request: Request) -> list[Result]:
        """Carry out a request on the generation that serves. If that stops meanwhile, the request may have been carried out."""
        try:
            results = await self._live().execute(request)
        except (FencedError, ClosedError) as error:
            raise SystemTabletUnavailableError(
                f"system tablet {self.latest.id} is starting again ({error}); try again in a moment"
            ) from error
        for watcher in self._watchers:
            watcher(request)
        return results

    def head(self, key: bytes) -> bytes | None:
        """What a key keeps in memory; None if there is no such key."""
        return self._live().head(key)

    def size(self, key: bytes) -> int:
        """The bytes of a value; 0 if there is no such key."""
        return self._live().size(key)

    def keys(self, begin: bytes, end: bytes | None) -> Iterator[bytes]:
        """Keys with begin <= key < end as they are now."""
        return self._live().keys(begin, end)

    async def stop_restarting(self) -> None:
        """Keep serving, but do not restart the tablet if it stops: the broker is shutting down."""
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)

    async def stop(self) -> None:
        """Finish what is in flight and stop for good."""
        await self.stop_restarting()
        self._serving = None
        await self.latest.stop()

    def _live(self) -> KvTablet:
        tablet = self._serving
        if tablet is None or tablet.stopped.is_set():
            raise SystemTabletUnavailableError(f"system tablet {self.latest.id} is starting again; try again in a moment")
        return tablet

    async def _keep(self) -> None:
        """Boot a new generation whenever the tablet has stopped; it serves once all hooks have run."""
        pause_s = RETRY_FIRST_S
        while True:
            began = self._clock.monotonic()
            await self.latest.stopped.wait()
            self._serving = None
            log.warning("system tablet %d has stopped in generation %d", self.latest.id, self.latest.generation)
            fenced = isinstance(self.latest.stop_cause, FencedError)
            await self.latest.stop()
            if fenced and self._on_fenced is not None:
                self._on_fenced()
                return
            # Two processes that fence each other must not prevent each other from serving at all.
            pause_s = RETRY_FIRST_S if self._clock.monotonic() - began >= STEADY_S else min(pause_s * 2, RETRY_MAX_S)
            await asyncio.sleep(pause_s)
            try:
                self.latest = await _boot(self._storage, self._random, self._probe)
                for hook in self._hooks:
                    await hook(self.latest)
            except PenstockError as error:
                log.warning("system tablet %d does not start, trying again: %s", self.latest.id, error)
                await self.latest.stop()
                if isinstance(error, FencedError) and self._on_fenced is not None:
                    self._on_fenced()
                    return
                continue
            self._serving = self.latest
            log.info("system tablet %d serves again, in generation %d", self.latest.id, self.latest.generation)


async def _boot(storage: TabletStorage, random: Random, probe: TabletProbe | None, *, give_up: bool = False) -> KvTablet:
    return await KvTablet.boot(storage, await storage.next_generation(), random=random, probe=probe, give_up=give_up)
