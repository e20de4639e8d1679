"""Threads that do a disk's blocking calls, each with a deadline: a disk that hangs costs its callers an error, never the loop.

A call that is overdue fails with ETIMEDOUT, though its thread may hang on. While as many overdue calls hang as there are
threads, every further call fails at once; calls are taken again when the threads come back. The threads are daemons: a process
can end while one of them hangs.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from penstock.core.errors import PenstockError

log = logging.getLogger(__name__)

T = TypeVar("T")

# Shorter than the 30 s that Kafka's clients wait for an answer, and longer than a sync on a disk that is only busy.
DISK_TIMEOUT_S = 15.0


class DiskThreads:
    """Runs blocking calls in order on a few threads and brings each result back to the loop."""

    def __init__(self, name: str, count: int, timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._name = name
        self._count = count
        self._timeout_s = timeout_s
        self._calls: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = SimpleQueue()
        self._pending: dict[asyncio.Future[Any], float] = {}  # when each was submitted, oldest first
        self._overdue: set[asyncio.Future[Any]] = set()  # failed for their callers, and not yet back from their thread
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self.is_idle = True  # whether no call is pending
        for number in range(count):
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True).start()

    @property
    def is_hung(self) -> bool:
        """Whether overdue calls occupy every thread."""
        return len(self._overdue) >= self._count

    def submit(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run `call` on a thread. Raises OSError if the threads are hung or stopped."""
        if self._overdue and self.is_hung:
            raise OSError(errno.ETIMEDOUT, f"the disk has not answered for more than {self._timeout_s:g} s")
        if self._stopped:
            raise OSError(errno.EBADF, "the disk is closed")
        done: asyncio.Future[T] = self._loop.create_future()
        # One timer for all calls that are pending, not one for each.
        self._pending[done] = self._loop.time()
        self.is_idle = False
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout_s, self._expire)
        self._calls.put((call, done))
        return done

    def stop(self) -> None:
        """End each thread after the calls that are queued; one that hangs is left behind."""
        if not self._stopped:
            self._stopped = True
            for _ in range(self._count):
                self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            call, done = item
            result: Any = None
            error: Exception | None = None
            # A call that its caller has given up is not made: the buffers that it names may have changed since.
            if not done.done():
                try:
                    result = call()
                except BaseException as caught:  # noqa: BLE001 - whatever it is, its caller must hear of it
                    error = as_disk_error(caught, self._name)
            try:
                self._loop.call_soon_threadsafe(self._settle, done, result, error)
            except RuntimeError:  # the loop is closed: there is no caller left
                return
            del item, call, done, result, error  # what they refer to must not live until the next call

    def _settle(self, done: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        self._pending.pop(done, None)
        if self._overdue and done in self._overdue:
            self._overdue.discard(done)
            if not self._overdue:
                log.warning("%s: the disk answers again", self._name)
        self.is_idle = not self._pending and not self._overdue
        if not self._pending and self._timer is not None and self._stopped:
            self._timer.cancel()
        if done.done():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def _expire(self) -> None:
        """Fail the calls that are overdue, and come back for the oldest of the others."""
        self._timer = None
        latest = self._loop.time() - self._timeout_s
        for done, submitted in list(self._pending.items()):
            if submitted > latest:
                self._timer = self._loop.call_at(submitted + self._timeout_s, self._expire)
                return
            del self._pending[done]
            if not self._overdue:
                log.error("%s: the disk hangs: a call has not returned for %g s", self._name, self._timeout_s)
            self._overdue.add(done)
            if not done.done():
                done.set_exception(OSError(errno.ETIMEDOUT, f"the disk has not answered for {self._timeout_s:g} s"))


def as_disk_error(error: BaseException, where: str) -> Exception:
    """The error as callers of a disk expect it: an OSError. Any other is a defect, and is logged with its stack."""
    if isinstance(error, (OSError, PenstockError)):
        return error
    log.error("%s: a call to the disk failed in an unexpected way", where, exc_info=error)
    return OSError(errno.EIO, f"unexpected {type(error).__name__}: {error}")
