"""A queue, a consumer and a producer for one test, by the real Python client; and what its errors say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from yt.wrapper.errors import YtError, YtHttpResponseError

SCHEMA = [
    {"name": "data", "type": "string"},
    {"name": "$timestamp", "type": "uint64"},
    {"name": "$cumulative_data_weight", "type": "int64"},
]


class Objects:
    """A queue, a consumer and a producer of one test."""

    def __init__(self, client: Any, name: str, tablets: int = 1) -> None:
        self.client = client
        self.queue, self.consumer, self.producer = (f"//tmp/{name}/{kind}" for kind in ("queue", "consumer", "producer"))
        attributes = {"dynamic": True, "schema": SCHEMA, "tablet_count": tablets}
        client.create("table", self.queue, attributes=attributes, recursive=True)
        client.mount_table(self.queue, sync=True)
        client.create("queue_consumer", self.consumer)
        client.create("queue_producer", self.producer)

    def insert(self, *data: str, tablet: int = 0) -> None:
        self.client.insert_rows(self.queue, [{"data": each, "$tablet_index": tablet} for each in data])

    def pull(self, offset: int = 0, tablet: int = 0, **options: Any) -> list[dict[str, Any]]:
        return list(self.client.pull_queue(self.queue, offset=offset, partition_index=tablet, **options))

    def data(self, offset: int = 0, tablet: int = 0) -> list[str]:
        return [row["data"] for row in self.pull(offset, tablet)]

    def register(self, *, vital: bool = True, partitions: list[int] | None = None) -> None:
        self.client.register_queue_consumer(self.queue, self.consumer, vital=vital, partitions=partitions)

    def advance(self, old: int | None, new: int, tablet: int = 0) -> None:
        self.client.advance_consumer(self.consumer, self.queue, partition_index=tablet, old_offset=old, new_offset=new)

    def offsets(self) -> list[int]:
        return [row["offset"] for row in self.client.select_rows(f"* from [{self.consumer}]")]

    def lower(self, tablet: int = 0) -> int:
        return int(self.client.get(f"{self.queue}/@queue_partitions/{tablet}/lower_row_index"))


Make = Callable[..., Objects]


def code_of(error: YtError) -> int:
    while isinstance(error, YtHttpResponseError) and error.inner_errors and "code" in error.inner_errors[0]:
        return int(error.inner_errors[0]["code"])
    return int(error.code)


def fails(code: int, call: Callable[[], Any]) -> YtError:
    with pytest.raises(YtError) as caught:
        call()
    assert code_of(caught.value) == code, str(caught.value)
    return caught.value
