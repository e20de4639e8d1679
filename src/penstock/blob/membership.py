"""A group as one node knows it: its configuration, which only ever gets newer, and the links that follow from it.

A node learns a newer configuration where it is decided, or from any VDisk: one that is in another generation answers RACE, and is
then asked for its configuration and offered this node's. So neither a node nor a VDisk that missed a change stays behind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.blob.blob_id import CHANNEL_KEY_SIZE
from penstock.blob.configuration import Configuration, ConfigurationReply, refusal
from penstock.blob.group import Group
from penstock.blob.link import DiskLink
from penstock.blob.proxy import GroupProxy
from penstock.blob.quorum import fits_fail_model
from penstock.blob.status import Status
from penstock.core.clock import Clock
from penstock.core.errors import ConfigError

log = logging.getLogger(__name__)

Connect = Callable[[Configuration, int], DiskLink | None]
"""Gives the link to a VDisk by its order number; None if that is hosted by this node, which sets the link itself."""


class Membership:
    """The present configuration of a group, with its `group` and `proxy`."""

    def __init__(self, configuration: Configuration, connect: Connect, clock: Clock) -> None:
        self.configuration = configuration
        self._connect = connect
        links = [connect(configuration, order) for order in range(len(configuration.seats))]
        self.group = Group(configuration.group, configuration.generation, configuration.erasure, links)
        self.group.on_race = self.refresh
        self.proxy = GroupProxy(self.group, clock)
        # The host of this node's VDisks follows: it is given the configuration before and the one after.
        self.on_learned: Callable[[Configuration, Configuration], None] | None = None

    def learn(self, offered: Configuration) -> bool:
        """Take a newer configuration; returns whether it was one. ConfigError if it contradicts the one that is known."""
        current = self.configuration
        if offered.generation < current.generation or offered == current:
            return False
        if reason := refusal(offered, current):
            raise ConfigError(reason)
        self.configuration = offered
        for order, (before, after) in enumerate(zip(current.seats, offered.seats, strict=True)):
            if before != after:
                self.group.links[order] = self._connect(offered, order)
        self.group.set_generation(offered.generation)
        log.info("group %08x is in configuration %d", offered.group, offered.generation)
        if self.on_learned is not None:
            self.on_learned(current, offered)
        return True

    async def trouble_with_moving(self, order: int) -> str:
        """Why a VDisk cannot be moved now; empty if it can. The group must be able to do without it and without all that are out,
        fresh or being refilled: one change is finished before the next."""
        erasure = self.configuration.erasure
        whole = sum(1 << other for other, is_whole in (await self.survey(order)).items() if is_whole)
        lacking = (1 << len(self.group.links)) - 1 & ~whole
        if fits_fail_model(erasure, lacking):
            return ""
        others = [
            str(self.group.vdisk_id(other)) for other in range(len(self.group.links)) if lacking >> other & 1 and other != order
        ]
        return f"VDisks {', '.join(others)} are out or being refilled; wait until they are complete"

    async def survey(self, without: int | None = None) -> dict[int, bool]:
        """Which VDisks serve, by order number, and whether each holds all that it should."""
        generation = self.configuration.generation
        asks = {
            order: link.listing(generation, bytes(CHANNEL_KEY_SIZE), b"", b"", reverse=False, limit=1)
            for order, link in enumerate(self.group.links)
            if link is not None and order != without
        }
        pages = await self.group.ask(asks, lambda _: False)
        return {order: page.proves_absence for order, page in pages.items() if page.status is Status.OK}

    async def refresh(self) -> None:
        """Offer this node's configuration to every VDisk, and take the newest that any of them is in."""
        asks = {order: link.configure(self.configuration) for order, link in enumerate(self.group.links) if link is not None}

        def newest(replies: dict[int, ConfigurationReply]) -> Configuration:
            known = [reply.current for reply in replies.values() if reply.current is not None]
            return max([*known, self.configuration], key=lambda configuration: configuration.generation)

        generation = self.configuration.generation
        replies = await self.group.ask(asks, lambda replies: newest(replies).generation > generation)
        try:
            self.learn(newest(replies))
        except ConfigError as error:
            log.error("group %08x: VDisks are in different configurations of one number: %s", self.group.id, error)
