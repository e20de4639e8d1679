"""Keeps what Spark always prints as it starts off the terminal: its own logging, the host name and modules of Java."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NOISE: Final = re.compile(
    rb"WARNING: Using incubator modules|WARNING: package sun\.|Using Spark's default log4j profile|Setting default log level to|"
    rb"To adjust logging level use|Setting Spark log level to|.* WARN Utils: (Your hostname|Set SPARK_LOCAL_IP)|"
    rb".* WARN NativeCodeLoader"
)


@contextmanager
def without_start_noise() -> Iterator[None]:
    """Start Java within this: its standard error is read here, and passed on without the known lines."""
    sys.stderr.flush()
    shown = os.dup(2)
    read_end, write_end = os.pipe()
    os.dup2(write_end, 2)
    os.close(write_end)
    threading.Thread(target=_pass_on, args=(read_end, shown), name="spark-stderr", daemon=True).start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(shown, 2)  # from here on only Java writes to the pipe


def _pass_on(read_end: int, shown: int) -> None:
    with open(read_end, "rb", buffering=0) as lines, open(shown, "wb", buffering=0) as terminal:
        rest = b""
        while chunk := lines.read(1 << 16):
            *whole, rest = (rest + chunk).split(b"\n")
            kept = [line + b"\n" for line in whole if not _NOISE.match(line)]
            if kept:
                terminal.write(b"".join(kept))
            if rest and not _may_be_noise(rest):
                terminal.write(rest)  # a progress bar has no line end
                rest = b""
        if rest and not _NOISE.match(rest):
            terminal.write(rest)


def _may_be_noise(start: bytes) -> bool:
    """Whether a line that is not complete yet may turn out to be a known one."""
    return start[:1].isdigit() or start[:1] in b"WUST"
