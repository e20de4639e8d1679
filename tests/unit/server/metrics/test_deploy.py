"""What is in deploy/ for Prometheus and Grafana: expressions that parse, about metrics that there are, with a runbook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from penstock.server.metrics import METRICS
from penstock.server.metrics.metric import Kind, Metric

ROOT = Path(__file__).resolve().parents[4]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "penstock.json"
RUNBOOK = ROOT / "docs" / "how-to" / "runbook.md"
# Of every target that Prometheus scrapes, whatever it is.
FROM_PROMETHEUS = {"up": Metric("up", Kind.GAUGE, "")}
TARGET_LABELS = frozenset({"job", "instance"})


def series_names() -> dict[str, Metric]:
    """The names that expressions may use, and the metric of each."""
    found = dict(FROM_PROMETHEUS)
    for metric in METRICS:
        suffixes = ("_bucket", "_count", "_sum") if metric.kind is Kind.HISTOGRAM else ("",)
        found.update({metric.name + suffix: metric for suffix in suffixes})
    return found


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return list(json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"])


def dashboard_expressions() -> Iterator[tuple[str, str]]:
    for panel in panels():
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def checked(expression: str) -> promql_parser.Expr:
    """An expression that parses, and asks for series and labels that there are."""
    names = series_names()
    # What Grafana fills in.
    plain = expression.replace("$__rate_interval", "5m").replace("$__interval", "1m")
    parsed = promql_parser.parse(plain)

    def look(node: promql_parser.Expr) -> None:
        selector = node.vector_selector if isinstance(node, promql_parser.MatrixSelector) else node
        if isinstance(selector, promql_parser.VectorSelector):
            assert selector.name in names, f"{selector.name} is not a metric, in {expression}"
            metric = names[selector.name]
            allowed = {*metric.labels, *TARGET_LABELS, *(("le",) if metric.kind is Kind.HISTOGRAM else ())}
            used = {matcher.name for matcher in selector.matchers.matchers}
            assert used <= allowed, f"{selector.name} has no label {used - allowed}, in {expression}"
        if isinstance(node, promql_parser.Call) and node.func.name in ("rate", "increase"):
            (inner,) = node.args
            assert isinstance(inner, promql_parser.MatrixSelector)
            name = inner.vector_selector.name
            assert name is not None
            assert names[name].kind is not Kind.GAUGE, f"{name} is a gauge, and has no rate: {expression}"

    promql_parser.walk(parsed, look)
    return parsed


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_a_rule_is_about_what_there_is_and_says_what_to_do(rule: dict[str, Any]) -> None:
    checked(rule["expr"])
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert ROOT / page == RUNBOOK
    heading, text = next(
        (heading, text) for heading, text in runbook().items() if heading.lower() == anchor == rule["alert"].lower()
    )
    assert heading == rule["alert"]
    assert len(text) > 80
    # A label in the text is one that the series still has.
    for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["description"]):
        assert label in rule["expr"] or label in labels_of(rule["expr"]), label


def labels_of(expression: str) -> set[str]:
    names = series_names()
    return {label for name, metric in names.items() if name in expression for label in (*metric.labels, *TARGET_LABELS)}


def runbook() -> dict[str, str]:
    """The sections of the runbook, by heading."""
    parts = re.split(r"^### (\w+)\n", RUNBOOK.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_runbook_has_no_section_that_no_rule_leads_to() -> None:
    assert list(runbook()) == [rule["alert"] for rule in rules()]


def test_what_the_console_warns_of_prometheus_warns_of_too() -> None:
    """The two lists are worked out apart; none of them may lack what the other has."""
    named = " ".join(rule["alert"].lower() for rule in rules())
    for word in ("storage", "diskfull", "retention", "laggrowing", "trimming", "pipeline", "clock", "eventloop"):
        assert word in named


@pytest.mark.parametrize(("title", "expression"), list(dashboard_expressions()))
def test_a_panel_is_about_what_there_is(title: str, expression: str) -> None:
    checked(expression)


def test_the_dashboard_can_be_provisioned() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert dashboard["uid"] == "penstock"
    assert "id" not in dashboard, "Grafana gives it one"
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    variables = {one["name"]: one for one in dashboard["templating"]["list"]}
    assert set(variables) == {"datasource", "job", "instance"}
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${datasource}"
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= {"job", "instance", "__rate_interval"}
    cells: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        own = {(place["y"] + row, place["x"] + column) for row in range(place["h"]) for column in range(place["w"])}
        assert not own & cells, f"{panel['title']} lies on another panel"
        assert place["x"] + place["w"] <= 24
        cells |= own


def test_every_public_metric_is_drawn_or_watched() -> None:
    text = " ".join([*(rule["expr"] for rule in rules()), *(expression for _, expression in dashboard_expressions())])
    unused = [
        metric.name
        for metric in METRICS
        if metric.tier.value == "public" and not re.search(rf"\b{metric.name}(_bucket|_count)?\b", text)
    ]
    assert unused == []
