"""The messages of YDB's services, from the package that ships them with the SDK. They have no types of their own here."""

from __future__ import annotations

from typing import Any

from google.protobuf import timestamp_pb2
from ydb._grpc.common.protos import (
    ydb_auth_pb2,
    ydb_discovery_pb2,
    ydb_issue_message_pb2,
    ydb_operation_pb2,
    ydb_query_pb2,
    ydb_scheme_pb2,
    ydb_status_codes_pb2,
    ydb_topic_pb2,
)

auth: Any = ydb_auth_pb2
discovery: Any = ydb_discovery_pb2
operation: Any = ydb_operation_pb2
query: Any = ydb_query_pb2
scheme: Any = ydb_scheme_pb2
topic: Any = ydb_topic_pb2

IssueMessage: Any = ydb_issue_message_pb2.IssueMessage
Status: Any = ydb_status_codes_pb2.StatusIds
Timestamp: Any = timestamp_pb2.Timestamp

RAW, GZIP, LZOP, ZSTD = 1, 2, 3, 4
CODEC_NAMES = {RAW: "raw", GZIP: "gzip", LZOP: "lzop", ZSTD: "zstd"}
SUPPORTED_CODECS = (RAW, GZIP, ZSTD)


def timestamp(time_ms: int) -> Any:
    """A time in milliseconds since 1970 as the protocol has it."""
    seconds, rest = divmod(time_ms, 1000)
    return Timestamp(seconds=seconds, nanos=rest * 1_000_000)


def milliseconds(stamp: Any) -> int:
    """A timestamp of the protocol in milliseconds since 1970."""
    time_ms: int = stamp.seconds * 1000 + stamp.nanos // 1_000_000
    return time_ms
