"""Samples as text: what Prometheus' own parsers make of it, and that declarations keep to the rules for names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from penstock.core.probe import DURATION_BOUNDS_S, Durations
from penstock.server.metrics import METRICS, catalogue
from penstock.server.metrics.exposition import OPEN_METRICS, TEXT, chosen_format, exposed
from penstock.server.metrics.metric import Kind, Metric, Samples, Tier
from penstock.server.metrics.quantile import quantile_s, summed_counts
from penstock.server.metrics.reference import rendered

ROOT = Path(__file__).resolve().parents[4]
AWKWARD = 'a "quoted" \\ name\nof two lines'
COUNTER = Metric("penstock_made_bytes_total", Kind.COUNTER, "Bytes \\ and\nlines.", ("topic",))
HISTOGRAM = Metric("penstock_took_seconds", Kind.HISTOGRAM, "How long.", ("api",))


def made() -> Samples:
    samples = Samples()
    samples.add(COUNTER, 12, AWKWARD)
    samples.add(COUNTER, 3, "plain")
    durations = Durations()
    for seconds in (0.00005, 0.0003, 0.02, 99.0):
        durations.note(seconds)
    samples.add(HISTOGRAM, durations, "Produce")
    return samples


def test_the_text_format_is_read_as_it_was_meant() -> None:
    families = {family.name: family for family in parse_text(exposed(made(), TEXT).decode())}
    counter, histogram = families["penstock_made_bytes"], families["penstock_took_seconds"]
    assert (counter.type, histogram.type) == ("counter", "histogram")
    assert {sample.labels["topic"]: sample.value for sample in counter.samples} == {AWKWARD: 12, "plain": 3}
    buckets = {sample.labels["le"]: sample.value for sample in histogram.samples if sample.name.endswith("_bucket")}
    assert (buckets["0.0001"], buckets["0.0005"], buckets["0.025"], buckets["10.0"], buckets["+Inf"]) == (1, 2, 3, 3, 4)
    assert next(sample.value for sample in histogram.samples if sample.name.endswith("_count")) == 4


def test_openmetrics_is_read_as_it_was_meant() -> None:
    # The parser of OpenMetrics has no types.
    parsed = parse_open_metrics(exposed(made(), OPEN_METRICS).decode())  # type: ignore[no-untyped-call]
    families = {family.name: family for family in parsed}
    counter = families["penstock_made_bytes"]
    assert (counter.type, counter.unit) == ("counter", "bytes")
    assert counter.samples[0].name == "penstock_made_bytes_total"
    assert families["penstock_took_seconds"].unit == "seconds"


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/plain;version=0.0.4", TEXT),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3", OPEN_METRICS),
    ],
)
def test_the_format_is_what_the_scraper_asks_for(accept: str, wanted: str) -> None:
    assert chosen_format(accept) == wanted


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_say_what_they_are(metric: Metric) -> None:
    assert re.fullmatch(r"penstock_[a-z][a-z0-9_]*[a-z0-9]", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert not re.search(r"_(ms|milliseconds|kb|mb|percent)(_|$)", metric.name), "base units only"
    if metric.kind is Kind.HISTOGRAM:
        assert metric.unit == "seconds", "all histograms share the bounds of durations"
    assert re.match(r"[A-Z01].*\.$", metric.doc)


def test_names_are_declared_once_and_listed() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert [one["name"] for one in catalogue()] == names
    assert {metric.tier for metric in METRICS} == set(Tier)


def test_the_reference_is_what_is_declared() -> None:
    page = ROOT / "docs" / "reference" / "metrics.md"
    assert page.read_text(encoding="utf-8") == rendered(), "run: python -m penstock.server.metrics.reference"


def test_quantiles_come_from_counts() -> None:
    durations = Durations()
    for _ in range(99):
        durations.note(0.0007)
    durations.note(0.4)
    assert 0.0005 < quantile_s(durations.counts, 0.5) <= 0.001
    assert 0.0005 < quantile_s(durations.counts, 0.99) <= 0.001
    assert 0.25 < quantile_s(durations.counts, 0.999) <= 0.5
    durations.note(1e6)
    assert quantile_s(durations.counts, 1.0) == DURATION_BOUNDS_S[-1]
    assert str(quantile_s(Durations().counts, 0.99)) == "nan"
    assert sum(summed_counts([durations, durations])) == 202
