"""Times one request of a gateway, counts its outcome, and traces it if tracing is on."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar, Token
from types import TracebackType

from penstock.core.errors import PenstockError
from penstock.core.probe import FAILED, GONE, OK, REFUSED, RequestProbe, Span
from penstock.core.trace_context import checked_traceparent, current_trace

_current_request: ContextVar[MeasuredRequest | None] = ContextVar("measured_request", default=None)


def note_waited(seconds: float) -> None:
    """Exclude a wait of the current request, such as for its quota, from its measured time."""
    request = _current_request.get()
    if request is not None:
        request.waited_s += seconds


class MeasuredRequest:
    """A context around the serving of a request. The outcome is `ok` unless an error leaves the context or `outcome` is set. The
    client's trace, or our span of it, is current within."""

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
        _current_request.set(self)
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
        _current_request.set(None)  # no token: a stream may be closed in another context after its client has left


def status_outcome(status: int) -> str:
    """The outcome of a request by its HTTP status."""
    return OK if status < 400 else REFUSED if status < 500 else FAILED


def _outcome_of(error: BaseException | None) -> str:
    if error is None:
        return OK
    if isinstance(error, PenstockError):
        return REFUSED
    return FAILED if isinstance(error, Exception) else GONE
