"""The page docs/reference/metrics.md, made from the declarations: python -m penstock.server.metrics.reference."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.core.probe import DURATION_BOUNDS_S
from penstock.server.metrics.alerts import EACH_MAX
from penstock.server.metrics.declarations import METRICS
from penstock.server.metrics.flows import IDLE_S, SHOWN_MAX
from penstock.server.metrics.history import HISTORY_METRICS, LEVELS, SERIES_MAX
from penstock.server.metrics.metric import OTHER, Metric, Tier
from penstock.server.metrics.observatory import LAG_HISTORIES, PIPELINE_HISTORIES, TOPIC_HISTORIES
from penstock.server.metrics.readings import LAGS_SHOWN, PIPELINES_SHOWN
from penstock.server.metrics.survey import SMALL

PAGE: Final = Path(__file__).resolve().parents[4] / "docs" / "reference" / "metrics.md"

_HEAD: Final = """# Metrics

*Made from the code by `python -m penstock.server.metrics.reference`; change it there.*

A node serves its metrics on its HTTP port, for Prometheus and all that reads its format (text, or OpenMetrics if asked for):

| Path | What |
|---|---|
| `/metrics` | the public tier: what everyone who runs a node wants to see |
| `/metrics/internal` | the same and the internal tier, for a look into how it works |

`GET /api/v1/metrics-catalogue` lists the same as JSON. Names are stable. Units are seconds and bytes; counters end in `_total`
and begin at 0 when the node starts. How to collect, plot and alert on them: [Monitoring](../how-to/monitoring.md).
"""


def rendered() -> str:
    """The whole page."""
    parts = [_HEAD, _limits()]
    for tier, title in ((Tier.PUBLIC, "Public"), (Tier.INTERNAL, "Internal")):
        parts.append(f"\n## {title}\n")
        parts.append("| Name | Type | Labels | Meaning |\n|---|---|---|---|")
        parts += [_row(metric) for metric in METRICS if metric.tier is tier]
    return "\n".join(parts) + "\n"


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.doc} |"


def _limits() -> str:
    steps = ", ".join(f"{step} s steps for {_span(step * count)}" for step, count in LEVELS)
    kept = ", ".join(f"`{name}`" for name in HISTORY_METRICS)
    return f"""
## Limits
However many topics there are, a scrape stays small and cheap:

- Series by topic are for at most {SHOWN_MAX} topics, those used first. The others are counted together as topic `{OTHER}`. A
  topic that was idle for {IDLE_S / 60:.0f} minutes gives its place to one that is not; `penstock_topics_hidden` says how many
  have none.
- Series by consumer and topic are for the {LAGS_SHOWN} largest lags; `penstock_consumer_lags_hidden` says how many are left out.
- Series by pipeline are for {PIPELINES_SHOWN} of them.
- What needs a look at every partition or position (sizes, lags) is gathered in the background, and shown as it was found last;
  `penstock_survey_age_seconds` says how old that is. On a node with up to {SMALL} partitions and positions it is gathered for
  the scrape.
- The history that the console draws is in memory, in {steps}. It is saved every minute
  and when the node stops, and goes on after a restart. It has {kept}, of the node, and what of that they have of the
  {TOPIC_HISTORIES} busiest topics, {LAG_HISTORIES} largest lags and {PIPELINE_HISTORIES} pipelines: {SERIES_MAX} series of
  22 KiB at most, so less than 9 MiB.
- Of each kind of alert, `penstock_alerts` and the overview show {EACH_MAX} at most.

All histograms have the same bounds: {", ".join(f"{bound:g}" for bound in DURATION_BOUNDS_S)} seconds."""


def _span(seconds: int) -> str:
    return f"{seconds // 60} minutes" if seconds < 3600 else f"{seconds // 3600} hours"


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(rendered(), encoding="utf-8")
