"""The system tablets of a broker: the five of every broker, and those that gateways add."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from penstock.blob import BlobStorage, Status
from penstock.broker.system_tablet import SystemTablet
from penstock.broker.tablets import tablet_info
from penstock.core.clock import Clock
from penstock.core.errors import DataMissingError, PenstockError
from penstock.tablet import TabletProbe

if TYPE_CHECKING:
    from penstock.broker.options import BrokerOptions

SYSTEM, CONSUMERS, TRANSACTIONS, NAMESPACE, TABLES = 2, 3, 4, 5, 8


class SystemTablets:
    """Running system tablets, by what they hold. Make it with `start`."""

    def __init__(self, boot: Callable[[int], Awaitable[SystemTablet]], running: list[SystemTablet]) -> None:
        self._boot = boot
        self.running = running
        self.system, self.consumers, self.transactions, self.namespace, self.tables = running

    @classmethod
    async def start(
        cls,
        storage: BlobStorage,
        options: BrokerOptions,
        *,
        clock: Clock,
        random: Random,
        probe: TabletProbe,
    ) -> SystemTablets:
        """Boot all five at once; with `give_up`, without their lost records. If one fails, the others are stopped."""
        boot = partial(_boot, storage=storage, options=options, clock=clock, random=random, probe=probe)
        boots = [asyncio.create_task(boot(number)) for number in (SYSTEM, CONSUMERS, TRANSACTIONS, NAMESPACE, TABLES)]
        try:
            return cls(boot, await asyncio.gather(*boots))
        except BaseException:
            for outcome in await asyncio.gather(*boots, return_exceptions=True):
                if isinstance(outcome, SystemTablet):
                    await outcome.stop()
            raise

    async def start_another(self, tablet_id: int) -> SystemTablet:
        """Boot an optional tablet; it is stopped with the others."""
        tablet = await self._boot(tablet_id)
        self.running.append(tablet)
        return tablet

    def trouble(self) -> str | None:
        """Returns why one of them cannot serve now; None if all can."""
        for tablet in self.running:
            try:
                tablet.head(b"")
            except PenstockError as error:
                return str(error)
        return None

    async def stop_restarting(self) -> None:
        """Keep serving, but do not restart tablets that stop: the broker is shutting down."""
        for tablet in self.running:
            await tablet.stop_restarting()

    async def stop(self) -> None:
        """Finish what is in flight and stop all of them."""
        for tablet in self.running:
            await tablet.stop()


async def check_existence(storage: BlobStorage, group: int) -> None:
    """DataMissingError if there is no system tablet in the storage."""
    discovery = await storage.tablet(tablet_info(SYSTEM, group)).discover(with_data=False)
    if discovery.status is Status.NODATA:
        raise DataMissingError(
            "the catalog of topics is gone from the storage, though a broker ran here before; restore the files of the disks "
            "from a backup (nothing was changed), or accept that all topics are lost"
        )


async def _boot(
    tablet_id: int, *, storage: BlobStorage, options: BrokerOptions, clock: Clock, random: Random, probe: TabletProbe
) -> SystemTablet:
    return await SystemTablet.start(
        storage.tablet(tablet_info(tablet_id, options.group)),
        clock=clock,
        random=random,
        probe=probe,
        give_up=tablet_id in options.give_up_tablets,
        on_fenced=options.on_fenced,
    )
