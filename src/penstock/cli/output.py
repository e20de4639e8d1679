"""What a command prints: tables for a person at a terminal, tab-separated lines for a pipe, JSON when asked for."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TextIO

from penstock.cli.sizes import shown_bytes, shown_duration

PROGRESS_INTERVAL_S = 0.5
WAIT_SHOWN_S: Final = 1.0
"What takes less is done before anyone wonders."
CLEAR_LINE: Final = "\x1b[K"
BOLD, GREEN, YELLOW, RED = "1", "32", "33", "31"


class Size(int):
    """A number of bytes; a person gets it with its unit."""

    def __str__(self) -> str:
        return shown_bytes(self)


class Milliseconds(int):
    """A stretch of time; a person gets it in days, hours or seconds."""

    def __str__(self) -> str:
        return "unlimited" if self < 0 else shown_duration(self / 1000)


Cell = str | int | None


def uses_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose owner has not set NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Output:
    """Standard output in one of its three forms."""

    def __init__(self, *, as_json: bool, headers: bool = True, stream: TextIO | None = None) -> None:
        self.as_json = as_json
        self._headers = headers
        self._stream = sys.stdout if stream is None else stream
        self.is_terminal = self._stream.isatty()
        self._uses_colour = uses_colour(self._stream)

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Output:
        """What the options of a command ask for."""
        return cls(as_json=arguments.output == "json", headers=not getattr(arguments, "no_headers", False))

    def rows(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Rows under column names: aligned on a terminal, with units; otherwise separated by tabs, with plain numbers."""
        heading = [name.upper() for name in columns]
        if not self.is_terminal:
            if self._headers:
                self.line("\t".join(heading))
            for row in rows:
                self.line("\t".join("" if cell is None else str(int(cell) if isinstance(cell, int) else cell) for cell in row))
            return
        cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(heading, *cells, strict=True)]
        numeric = [bool(rows) and all(isinstance(row[at], int | None) for row in rows) for at in range(len(columns))]
        for number, row in enumerate([heading, *cells] if self._headers else cells):
            padded = (
                cell.rjust(width) if right else cell.ljust(width) for cell, width, right in zip(row, widths, numeric, strict=True)
            )
            line = "  ".join(padded).rstrip()
            self.line(self.coloured(line, BOLD) if self._headers and number == 0 else line)

    def coloured(self, text: str, colour: str) -> str:
        """Text in a colour, where colours are wanted."""
        return f"\x1b[{colour}m{text}\x1b[0m" if self._uses_colour and text else text

    def document(self, content: Mapping[str, object] | Sequence[object]) -> None:
        """JSON, indented for a terminal and on one line for a pipe."""
        self.line(json.dumps(content, indent=2 if self.is_terminal else None, ensure_ascii=False))

    def say(self, sentence: str) -> None:
        """What was done, for a person; JSON says it in a document of its own."""
        if not self.as_json:
            self.line(sentence)

    def line(self, text: str) -> None:
        """One line as it is."""
        self._stream.write(text + "\n")


class Progress:
    """How far long work has come, rewritten in place on standard error; silent unless that is a terminal."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown and sys.stderr.isatty()
        self._started = self._told = time.monotonic()
        self._messages = self._bytes = 0
        self._wrote = False

    def add(self, messages: int, size: int) -> None:
        """Some more is done."""
        self._messages += messages
        self._bytes += size
        if self._shown and time.monotonic() - self._told >= PROGRESS_INTERVAL_S:
            self._tell()

    def end(self) -> None:
        """It is over: the last figures stay."""
        if self._wrote:
            self._tell()
            sys.stderr.write("\n")

    def _tell(self) -> None:
        self._told = time.monotonic()
        speed = self._bytes / max(self._told - self._started, 1e-9)
        sys.stderr.write(f"\r{self._messages:,} messages, {self._bytes / 1e6:,.1f} MB, {speed / 1e6:,.1f} MB/s{CLEAR_LINE}")
        sys.stderr.flush()
        self._wrote = True


class StatusLine:
    """One line on standard error that is rewritten in place, and gone at the end; nothing unless that is a terminal."""

    def __init__(self) -> None:
        self._shown = False

    def show(self, text: str) -> None:
        """Replace the line."""
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{text}{CLEAR_LINE}")
            sys.stderr.flush()
            self._shown = True

    def clear(self) -> None:
        """Remove the line."""
        if self._shown:
            sys.stderr.write(f"\r{CLEAR_LINE}")
            sys.stderr.flush()
            self._shown = False


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Tells on a terminal how long something takes that has no progress of its own to show."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    began = time.monotonic()

    def tell() -> None:
        told = False
        while not done.wait(PROGRESS_INTERVAL_S if told else WAIT_SHOWN_S):
            told = True
            sys.stderr.write(f"\r{what}… {time.monotonic() - began:.0f} s{CLEAR_LINE}")
            sys.stderr.flush()
        if told:
            sys.stderr.write(f"\r{CLEAR_LINE}")
            sys.stderr.flush()

    teller = threading.Thread(target=tell, name="waiting", daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def confirm(question: str, *, yes: bool) -> bool:
    """Ask before what cannot be undone, if there is a person to ask."""
    if yes or sys.stdin is None or not sys.stdin.isatty():
        return True
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
