"""What a pipeline will do, for people."""

from __future__ import annotations

from penstock.spark.pipelines.spec import PipelineSpec


def plan_lines(spec: PipelineSpec) -> list[str]:
    """What a pipeline will do, for a person."""
    lines = [
        f"pipeline {spec.name} ({spec.kind})",
        f"  reads   {spec.source}" + ("" if spec.kind == "load" else f", at {spec.brokers}"),
    ]
    values = {name: spec.source.value_of(name).format for name in spec.source.topics} or {"*": spec.source.value.format}
    decoded = {form for form in values.values() if form != "raw"}
    if decoded:
        outcome = "stop the pipeline" if spec.dead_letters.stops else f"go to {spec.dead_letters}"
        lines.append(f"  decodes {', '.join(sorted(decoded))}; values that cannot be decoded {outcome}")
    if spec.transform is not None:
        what = spec.transform.sql or getattr(spec.transform.python, "__name__", str(spec.transform.python))
        lines.append(f"  does    {' '.join(str(what).split())[:100]}")
    lines.append(f"  writes  {spec.target}" + (f", at {spec.brokers}" if spec.kind == "load" else ""))
    consumer = "" if spec.kind == "load" else f", as consumer {spec.consumer}"
    lines.append(f"  runs    {spec.trigger}, at most {spec.rows_max:,} rows a batch{consumer}")
    return lines
