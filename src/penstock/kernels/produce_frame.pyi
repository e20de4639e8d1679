from typing import Any, Final, Protocol

from penstock.core.errors import PenstockError
from penstock.core.probe import Span

COMPILED: Final[bool]
COPIED_MAX: Final = 65536
RECORDS_MAX: Final = 16384

class _Result(Protocol):
    @property
    def base_offset(self) -> int: ...

class _Partition(Protocol):
    start_offset: int

def source_name(producer_id: int) -> bytes: ...

class ProduceFrame:
    version: int
    correlation_id: int
    client_id: str | None
    acks: int
    timeout_ms: int
    batches: list[ProducedBatch]
    throttle_time_ms: int
    has_errors: bool
    has_views: bool
    is_done: bool
    is_refused: bool
    must_close: bool
    span: Span | None
    def parse(self, buffer: bytearray, begin: int, end: int) -> bool: ...
    def queued(self) -> None: ...
    def settled(self) -> None: ...
    def answer(self, buffers: list[Any] | None = None, size: int = 0) -> None: ...
    def encode(self) -> tuple[list[Any], int]: ...
    def reply(self) -> bytes: ...

class ProducedBatch:
    topic: str | bytes
    index: int
    data: bytearray | memoryview
    attributes: int
    messages: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    base_offset: int
    is_checked: bool
    earliest_ms: int
    latest_ms: int
    keyless: int
    partitions: int
    partition: _Partition | None
    is_settled: bool
    error: PenstockError | None
    error_code: int
    error_message: str | None
    log_append_time_ms: int
    log_start_offset: int
    @property
    def codec(self) -> int: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...
    def done(self) -> bool: ...
    def set_result(self, result: _Result, /) -> None: ...
    def stored_at(self, base_offset: int) -> None: ...
    def set_exception(self, error: PenstockError, /) -> None: ...
