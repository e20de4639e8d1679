"""One request of a gateway from its beginning to its end: timed, counted by how it ended, and traced if that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar, Token
from types import TracebackType

from penstock.core.errors import PenstockError
from penstock.core.probe import FAILED, GONE, OK, REFUSED, RequestProbe, Span
from penstock.core.trace_context import checked_traceparent, current_trace

_under_way: ContextVar[MeasuredRequest | None] = ContextVar("measured_request", default=None)


def note_waited(seconds: float) -> None:
    """The request under way has waited, for its quota or for others: that is no part of the time it is said to have taken."""
    request = _under_way.get()
    if request is not None:
        request.waited_s += seconds


class MeasuredRequest:
    """A context around the serving of a request. It is `ok` unless an error leaves it, or `outcome` is set. The trace that the
    client named, or our part of it, is the current one within it."""

    __slots__ = ("_api", "_began", "_parent", "_probe", "_span", "_token", "_tracks", "outcome", "waited_s")

    def __init__(
        self,
        probe: RequestProbe,
        api: str,
        traceparent: str | None = None,
        attributes: Mapping[str, str | int] | None = None,
        *,
        name: str = "",
    ) -> None:
        self.outcome: str | None = None
        self.waited_s = 0.0
        self._probe = probe
        self._api = api
        self._parent = checked_traceparent(traceparent)
        self._tracks = (name or api, attributes)
        self._span: Span | None = None
        self._token: Token[str | None] | None = None
        self._began = probe.now()

    def __enter__(self) -> MeasuredRequest:
        tracing = self._probe.tracing
        if tracing is not None:
            name, attributes = self._tracks
            self._span = tracing.begin(name, self._parent, attributes)
        current = self._parent if self._span is None else self._span.traceparent
        if current is not None:
            self._token = current_trace.set(current)
        _under_way.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        outcome = self.outcome
        if outcome is None:
            outcome = _outcome_of(error)
        self._probe.note(self._api, outcome, max(self._probe.now() - self._began - self.waited_s, 0.0))
        if self._span is not None:
            self._span.end(outcome)
        if self._token is not None:
            current_trace.reset(self._token)
        _under_way.set(None)  # no token: a stream that its client has left may be closed in another context


def status_outcome(status: int) -> str:
    """How a request ended that was answered with this status of HTTP."""
    return OK if status < 400 else REFUSED if status < 500 else FAILED


def _outcome_of(error: BaseException | None) -> str:
    if error is None:
        return OK
    if isinstance(error, PenstockError):
        return REFUSED
    return FAILED if isinstance(error, Exception) else GONE
