"""Whether an open file still has a name; asked after every write, so without the object that `os.fstat` makes, and without the
times that it asks for (links.pxd says what these cost)."""

from __future__ import annotations

import os
from typing import Final

import cython

if cython.compiled:
    from cython.cimports.libc.errno import errno
    from cython.cimports.penstock.kernels.links import penstock_links

COMPILED: Final[bool] = cython.compiled


def has_name(fd: cython.int) -> cython.bint:
    """Returns whether a file that is open has a name in some directory. Raises OSError if that cannot be told."""
    if not cython.compiled:
        return os.fstat(fd).st_nlink > 0
    links: cython.longlong = penstock_links(fd)
    if links < 0:
        raise OSError(errno, os.strerror(errno))
    return links > 0
