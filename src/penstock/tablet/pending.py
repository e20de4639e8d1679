"""Requests that wait for their commit, and the receivers of their outcomes."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from penstock.core.errors import PenstockError
from penstock.tablet.commands import GetStatus, Read, ReadRange, Request, Result, Write

QUESTIONS = frozenset({Read, ReadRange, GetStatus})
"""The commands that change nothing."""


class Outcome(Protocol):
    """Receives the outcome of a request; a future is one. It must not raise: other requests wait behind it."""

    def done(self) -> bool:
        """Whether it has the outcome already, or was cancelled."""
        ...

    def set_result(self, result: list[Result], /) -> None:
        """The request is durable; a result for each of its commands."""
        ...

    def set_exception(self, exception: PenstockError, /) -> None:
        """The request was refused, or may not be durable."""
        ...


class Pending(NamedTuple):
    """A request that waits for its commit."""

    request: Request
    outcome: Outcome
    size: int  # bytes to be written
    asks: bool  # whether it reads, too

    @classmethod
    def of(cls, request: Request, outcome: Outcome) -> Pending:
        """A request that has just come."""
        size = 0
        asks = False
        for command in request.commands:
            if isinstance(command, Write):
                size += command.size
            elif type(command) in QUESTIONS:
                asks = True
        return cls(request, outcome, size, asks)

    def succeed(self, results: list[Result]) -> None:
        """It is durable."""
        if not self.outcome.done():
            self.outcome.set_result(results)

    def fail(self, error: PenstockError) -> None:
        """It is not, or may not be."""
        if not self.outcome.done():
            self.outcome.set_exception(error)
