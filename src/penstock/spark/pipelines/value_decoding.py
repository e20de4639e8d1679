"""Decodes values inside a streaming query: stored rows become the columns of a view, and bad values are counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.spark.malformed import MalformedValue
from penstock.spark.pipelines.views import View, spread
from penstock.spark.value_format import decode_column
from penstock.spark.value_formats import value_format


class DecodeTask:
    """A task that decodes the first column of its rows. Ranges with bad values are added to the accumulator `counts`."""

    def __init__(self, view: View, counts: Any) -> None:
        self._options = view.options
        self._kind = view.layout.value_type
        self._names = view.columns.names
        self._counts = counts

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        form = value_format(self._options, self._kind, fails=False)
        assert form is not None
        for batch in batches:
            if not batch.num_rows:
                continue
            bad: list[MalformedValue] = []
            form.malformed = bad
            decoded = decode_column(form, batch.column(0))
            rows = pa.RecordBatch.from_arrays([decoded, *batch.columns[1:]], names=batch.schema.names)
            if bad:
                bad_rows = [value.row for value in bad]
                topics, partitions = (
                    batch.column("topic").take(pa.array(bad_rows)),
                    batch.column("partition").take(pa.array(bad_rows)),
                )
                for topic, partition in set(zip(topics.to_pylist(), partitions.to_pylist(), strict=True)):
                    self._counts.add({(topic, partition): (0, 1, 0)})
                is_good = np.ones(batch.num_rows, bool)
                is_good[bad_rows] = False
                rows = rows.filter(pa.array(is_good))
            yield spread(rows, self._names)
