"""Detects that the process runs out of file descriptors. Then no connection is accepted and no file opened, and some listeners do
not report that: so this opens a few periodically."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
from typing import Final

from penstock.core.clock import Clock

log = logging.getLogger(__name__)

INTERVAL_S: Final = 0.5
SPARE: Final = 8  # with fewer than these the next few connections take the last
_OUT_OF_THEM: Final = frozenset({errno.EMFILE, errno.ENFILE})


class DescriptorWatch:
    """`run` it as a task."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.exhaustions = 0  # how often there were none
        self.last_s: float | None = None  # when there were none for the last time
        self._since_s: float | None = None  # while there are none

    async def run(self) -> None:
        """Check periodically."""
        while True:
            self.look()
            await asyncio.sleep(INTERVAL_S)

    def look(self) -> None:
        """Open a few descriptors; log when there are none, and when there are some again."""
        now_s = self._clock.monotonic()
        taken: list[int] = []
        try:
            for _ in range(SPARE):
                taken.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            if error.errno not in _OUT_OF_THEM:
                raise
            self.last_s = now_s
            if self._since_s is None:
                self._since_s = now_s
                self.exhaustions += 1
                log.error(
                    "no file descriptor is left, or hardly one (%s; the process may have %d): connections are refused and files "
                    "cannot be opened; raise the hard limit (ulimit -Hn, LimitNOFILE), or see who opens so many connections",
                    error.strerror,
                    resource.getrlimit(resource.RLIMIT_NOFILE)[0],
                )
        else:
            if self._since_s is not None:
                log.warning("file descriptors are free again, after %.0f s", now_s - self._since_s)
                self._since_s = None
        finally:
            for descriptor in taken:
                os.close(descriptor)
