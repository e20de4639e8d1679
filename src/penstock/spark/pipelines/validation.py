"""Validates a pipeline before it runs: the broker and its topics, then with Spark the query and the target."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from penstock.kafka.client import BlockingClient, BrokerUnreachableError
from penstock.spark.pipelines.errors import SpecError, SpecFault
from penstock.spark.pipelines.fence import target_options
from penstock.spark.pipelines.job import CheckableJob
from penstock.spark.pipelines.kinds import make_job
from penstock.spark.pipelines.spec import PipelineSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_S: Final = 10.0


def check_broker(spec: PipelineSpec) -> None:
    """Raise SpecError if the broker lacks a topic of the file, or a feature that it needs."""
    options = replace(target_options(spec).client, api_timeout_s=CONNECT_S, first_node_timeout_s=CONNECT_S)
    faults: list[SpecFault] = []
    with closing(BlockingClient(options)) as client:
        try:
            existing = set(client.known_topics(None))
        except BrokerUnreachableError as error:
            raise BrokerUnreachableError(str(spec.origin.fault("brokers", str(error)))) from error
        faults += _missing_topics(spec, existing)
        if spec.target.topic is not None and not client.commits_together():
            what = f"the broker at {spec.brokers} is not Penstock: it cannot commit rows and positions as one; use a table"
            faults.append(spec.origin.fault("target.topic", what))
    if faults:
        raise SpecError(faults)


def check_with_spark(spec: PipelineSpec, spark: SparkSession) -> None:
    """Raise SpecError or another error if the pipeline cannot run: schemas, queries, the columns of the target."""
    job = make_job(spec)
    try:
        if isinstance(job, CheckableJob):
            job.check(spark)
    finally:
        job.close()


def _missing_topics(spec: PipelineSpec, existing: set[str]) -> Iterable[SpecFault]:
    for number, topic in enumerate(spec.source.topics):
        if topic not in existing:
            near = get_close_matches(topic, existing, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"`penstock topic create {topic}` makes it"
            path = f"source.topics[{number}]"
            yield spec.origin.fault(path, f"there is no topic {topic!r} at {spec.brokers}; {hint}")
    pattern = spec.source.pattern
    if pattern is not None and not any(re.fullmatch(pattern, topic) for topic in existing):
        yield spec.origin.fault("source.pattern", f"no topic at {spec.brokers} has a name like {pattern}")
