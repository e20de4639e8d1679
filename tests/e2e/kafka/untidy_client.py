"""kafka-python leaves sockets open when it is closed, which is not ours to mend."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def untidy_client() -> Iterator[None]:
    """Use a client in here, and drop it before leaving: what it left open is closed without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()
