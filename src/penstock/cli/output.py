"""What a command prints: tables for a person at a terminal, tab-separated lines for a pipe, JSON when asked for."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TextIO

Cell = str | int | None
PROGRESS_INTERVAL_S = 0.5


class Output:
    """Standard output in one of its three forms."""

    def __init__(self, *, as_json: bool, stream: TextIO | None = None) -> None:
        self.as_json = as_json
        self._stream = sys.stdout if stream is None else stream
        self.is_terminal = self._stream.isatty()

    def rows(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Rows under column names: aligned with a heading on a terminal, else without one and separated by tabs."""
        cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
        if not self.is_terminal:
            for row in cells:
                self.line("\t".join(row))
            return
        heading = [name.upper() for name in columns]
        widths = [max(map(len, column)) for column in zip(heading, *cells, strict=True)]
        numeric = [bool(rows) and all(isinstance(row[at], int | None) for row in rows) for at in range(len(columns))]
        for row in [heading, *cells]:
            padded = (
                cell.rjust(width) if right else cell.ljust(width) for cell, width, right in zip(row, widths, numeric, strict=True)
            )
            self.line("  ".join(padded).rstrip())

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
        sys.stderr.write(f"\r{self._messages:,} messages, {self._bytes / 1e6:,.1f} MB, {speed / 1e6:,.1f} MB/s\x1b[K")
        sys.stderr.flush()
        self._wrote = True


def confirm(question: str, *, yes: bool) -> bool:
    """Ask before what cannot be undone, if there is a person to ask."""
    if yes or sys.stdin is None or not sys.stdin.isatty():
        return True
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
