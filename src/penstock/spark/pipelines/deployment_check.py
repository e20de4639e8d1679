"""Checks a pipeline before a node takes it into its care, in a process of its own: files of Python are run to be read.

Standard input: {"file": {…}, "before": {…} or null, "is_reset": …, "master": … or null, "conf": {…}}, the files as in
`DeployedFile`. Standard output: what the pipeline is, or {"error": …}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from penstock.core.errors import PenstockError
from penstock.spark.java import use_java
from penstock.spark.pipelines.deployed import DeployedFile, read_deployed
from penstock.spark.pipelines.spark_master import choose_master
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.pipelines.upgrade import check_upgrade
from penstock.spark.pipelines.validation import check_broker


def check_deployment(order: Mapping[str, Any]) -> dict[str, Any]:
    """What a pipeline is, after all that can be checked without Spark; PenstockError if it cannot run."""
    use_java()
    choose_master(order.get("master"), order.get("conf") or {})
    spec = read_deployed(DeployedFile(**order["file"]))
    if order.get("before") is not None:
        check_upgrade(read_deployed(DeployedFile(**order["before"])), spec, is_reset=bool(order.get("is_reset")))
    check_broker(spec)
    return describe(spec)


def describe(spec: PipelineSpec) -> dict[str, Any]:
    """What a node has to know of a pipeline."""
    return {
        "name": spec.name,
        "kind": spec.kind,
        "application": spec.application,
        "source": str(spec.source),
        "source_topics": list(spec.source.topics),
        "target": str(spec.target),
        "target_topic": None if spec.target.fan_out else spec.target.topic,
        "dead_letter_topic": spec.dead_letters.topic,
    }


def main() -> None:
    """Check what standard input says."""
    answer: dict[str, Any]
    try:
        answer = check_deployment(json.load(sys.stdin))
    except PenstockError as error:
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
