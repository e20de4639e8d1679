"""A thread that syncs files, and a caller that waits for it only so long: a disk that hangs stops its caller for that time and no
longer. Neither needs the interpreter meanwhile, so that the change of threads costs a few microseconds.

Without a compiler there is no such thread: the caller syncs by itself, however long that takes.
"""

from __future__ import annotations

import os
import threading
from typing import Final

import cython

if cython.compiled:
    from cython.cimports.libc.errno import EINTR, errno
    from cython.cimports.penstock.kernels.semaphores import sem_init, sem_post, sem_t, sem_timedwait, sem_wait
    from cython.cimports.posix.time import CLOCK_REALTIME, clock_gettime, timespec
    from cython.cimports.posix.unistd import fdatasync

COMPILED: Final[bool] = cython.compiled


@cython.final
@cython.cclass
class SyncThread:
    """One sync at a time."""

    is_busy = cython.declare(cython.bint, visibility="readonly")  # whether a sync is in flight that was not waited for to the end
    _started: sem_t
    _done: sem_t
    _fd: cython.int
    _error: cython.int
    _is_stopped: cython.bint

    def __init__(self, name: str) -> None:
        self.is_busy = self._is_stopped = False
        if cython.compiled:
            sem_init(cython.address(self._started), 0, 0)
            sem_init(cython.address(self._done), 0, 0)
            # A daemon: a process can end while it hangs.
            threading.Thread(target=self.run, name=name, daemon=True).start()

    def sync(self, fd: cython.int, wait_s: cython.double) -> cython.bint:
        """Syncs the data of a file. Returns False if that takes longer than the caller waits: then `finish` is to be called.
        Raises OSError if it fails."""
        is_done: cython.bint
        assert not self.is_busy, "one sync is in flight at a time"
        if not cython.compiled:
            os.fdatasync(fd)
            return True
        self._fd = fd
        self.is_busy = True
        with cython.nogil:
            sem_post(cython.address(self._started))
            is_done = self._wait(wait_s)
        if is_done:
            self._settle()
        return is_done

    def finish(self) -> None:
        """Waits for the sync in flight to its end. Raises OSError if it fails."""
        if cython.compiled:
            with cython.nogil:
                while sem_wait(cython.address(self._done)) != 0:
                    pass
        self._settle()

    def stop(self) -> None:
        """Ends the thread when it is idle."""
        self._is_stopped = True
        if cython.compiled:
            sem_post(cython.address(self._started))

    def run(self) -> None:
        """What the thread does."""
        if cython.compiled:
            with cython.nogil:
                self._serve()

    def _settle(self) -> None:
        self.is_busy = False
        if self._error != 0:
            raise OSError(self._error, os.strerror(self._error))

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _serve(self) -> cython.void:
        while True:
            while sem_wait(cython.address(self._started)) != 0:
                pass
            if self._is_stopped:
                return
            self._error = 0
            while fdatasync(self._fd) != 0:
                if errno != EINTR:
                    self._error = errno
                    break
            sem_post(cython.address(self._done))

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _wait(self, wait_s: cython.double) -> cython.bint:
        """Waits for the sync in flight so long. Returns whether it has ended."""
        until = cython.declare(timespec)
        clock_gettime(CLOCK_REALTIME, cython.address(until))
        until.tv_nsec += cython.cast(cython.long, wait_s * 1e9)
        until.tv_sec += until.tv_nsec // 1000000000
        until.tv_nsec %= 1000000000
        while sem_timedwait(cython.address(self._done), cython.address(until)) != 0:
            if errno != EINTR:
                return False
        return True
