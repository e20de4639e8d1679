"""Whether an open file still has a name; asked after every write, so without the object that `os.fstat` makes."""

from __future__ import annotations

import os
from typing import Final

import cython

if cython.compiled:
    from cython.cimports.libc.errno import errno
    from cython.cimports.posix.stat import fstat, struct_stat

COMPILED: Final[bool] = cython.compiled


def has_name(fd: cython.int) -> cython.bint:
    """Returns whether a file that is open has a name in some directory. Raises OSError if that cannot be told."""
    if not cython.compiled:
        return os.fstat(fd).st_nlink > 0
    status = cython.declare(struct_stat)
    if fstat(fd, cython.address(status)) != 0:
        raise OSError(errno, os.strerror(errno))
    return status.st_nlink > 0
