"""Exposes metrics as text for Prometheus: in its own format, or as OpenMetrics if the client accepts it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from penstock.core.probe import DURATION_BOUNDS_S, Durations
from penstock.server.metrics.metric import Kind, Metric, Sample, Samples

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_BOUNDS: Final = tuple(f'le="{bound}"' for bound in (*DURATION_BOUNDS_S, "+Inf"))


def chosen_format(accept: str) -> str:
    """The format that suits an Accept header."""
    return OPEN_METRICS if "application/openmetrics-text" in accept else TEXT


def exposed(samples: Samples, content_type: str) -> bytes:
    """All samples, in a format."""
    is_open = content_type == OPEN_METRICS
    lines: list[str] = []
    for metric, values in samples.by_metric.items():
        lines += _family(metric, values, is_open=is_open)
    if is_open:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode()


def _family(metric: Metric, values: Sequence[Sample], *, is_open: bool) -> Iterator[str]:
    name = metric.name
    if is_open:
        name = name.removesuffix("_total")
    yield f"# HELP {name} {_escaped(metric.doc)}"
    yield f"# TYPE {name} {metric.kind.value}"
    if is_open and metric.unit:
        yield f"# UNIT {name} {metric.unit}"
    for labels, value in values:
        named = [f'{label}="{_escaped_label(text)}"' for label, text in zip(metric.labels, labels, strict=True)]
        if isinstance(value, Durations):
            assert metric.kind is Kind.HISTOGRAM
            yield from _histogram(metric.name, named, value)
        else:
            yield f"{metric.name}{_braced(named)} {value!r}"


def _histogram(name: str, named: list[str], durations: Durations) -> Iterator[str]:
    total = 0
    for bound, count in zip(_BOUNDS, tuple(durations.counts), strict=True):
        total += count
        yield f"{name}_bucket{_braced([*named, bound])} {total}"
    yield f"{name}_count{_braced(named)} {total}"
    yield f"{name}_sum{_braced(named)} {durations.total_s!r}"


def _braced(named: list[str]) -> str:
    return "{" + ",".join(named) + "}" if named else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escaped_label(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
