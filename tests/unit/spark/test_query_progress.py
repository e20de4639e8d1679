"""The progress of a query, as Spark gives it, in terms of topics."""

from __future__ import annotations

import json

from penstock.kafka.client import TopicPartition
from penstock.spark import progress


def test_sources_have_the_names_of_their_topics_and_a_lag() -> None:
    end = {"orders": {"0": 10, "1": 5}, "$topicIds": {"orders": "ab"}}
    latest = {"orders": {"0": 12, "1": 5, "2": 100}, "$topicIds": {"orders": "ab"}}
    source = {"description": "PythonMicroBatchStream@1f", "numInputRows": 1500, "processedRowsPerSecond": 2000.0}
    fields = {
        "sources": [
            {**source, "endOffset": end, "latestOffset": latest},
            {**source, "endOffset": json.dumps(end), "latestOffset": None},
            {"description": "RateStreamV2", "endOffset": 5, "latestOffset": 5},
            {"description": "FileStreamSource", "endOffset": {"logOffset": 0}},
        ]
    }
    first, second = progress(fields)
    assert (first.topics, first.lag, first.offsets[TopicPartition("orders", 1)]) == (("orders",), 102, 5)
    assert str(first) == "penstock[orders]: 1,500 rows, 2,000 a second, 102 behind"
    assert second.lag is None
    assert str(second) == "penstock[orders]: 1,500 rows, 2,000 a second"
