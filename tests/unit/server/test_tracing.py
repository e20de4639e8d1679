"""Traces: the trace a client names is found, and spans reach a real receiver of OTLP, over HTTP."""

from __future__ import annotations

import json
import logging
from io import StringIO

import pytest
from aiohttp.http_exceptions import BadHttpMessage
from grpc._cython import cygrpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from penstock.core.probe import FAILED, OK, RequestProbe
from penstock.core.record_compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress_like
from penstock.core.record_format import framed, packed_record
from penstock.core.trace_context import checked_traceparent, current_trace, first_traceparent
from penstock.gateway.measured_request import MeasuredRequest
from penstock.server.errors import BadSettingError
from penstock.server.log_lines import ClientFaults, JsonFormatter, LineFormatter
from penstock.server.tracing import start_tracing
from tests.otlp_receiver import attributes_of, otlp_grpc_receiver, otlp_receiver

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def test_spans_reach_a_receiver_as_part_of_the_trace_that_was_named() -> None:
    with otlp_receiver() as (receiver, endpoint):
        tracing = start_tracing(endpoint, node_id=7, cluster="east", environ={})
        assert tracing is not None
        probe = RequestProbe()
        probe.tracing = tracing
        with MeasuredRequest(probe, "publish", PARENT, {"messaging.system": "penstock"}, name="stream publish"):
            assert (current_trace.get() or "").startswith(f"00-{TRACE}-")
            assert current_trace.get() != PARENT, "what is done for the request is below the span of the request"
        with pytest.raises(RuntimeError), MeasuredRequest(probe, "read"):
            raise RuntimeError
        assert current_trace.get() is None
        tracing.stop()
    named, unnamed = receiver.spans()
    assert (named.name, named.trace_id.hex(), named.parent_span_id.hex()) == ("stream publish", TRACE, "b7ad6b7169203331")
    assert named.kind == Span.SPAN_KIND_SERVER
    assert attributes_of(named) | {"messaging.system": "penstock", "penstock.outcome": OK} == attributes_of(named)
    assert (unnamed.name, unnamed.parent_span_id, attributes_of(unnamed)["penstock.outcome"]) == ("read", b"", FAILED)
    assert unnamed.trace_id.hex() != TRACE
    assert receiver.resource()["service.instance.id"] == "east-7"


def test_spans_go_by_grpc_to_an_endpoint_that_says_so() -> None:
    with otlp_grpc_receiver() as (receiver, endpoint):
        tracing = start_tracing(endpoint, node_id=1, cluster="c", environ={})
        assert tracing is not None
        tracing.begin("kafka Produce", PARENT, {"messaging.system": "kafka"}).end(OK)
        tracing.stop()
    (span,) = receiver.spans()
    assert (span.name, span.trace_id.hex()) == ("kafka Produce", TRACE)


def test_the_usual_variables_turn_it_on() -> None:
    assert start_tracing(None, node_id=1, cluster="c", environ={}) is None
    disabled = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}
    assert start_tracing(None, node_id=1, cluster="c", environ=disabled) is None
    made = start_tracing(
        None, node_id=1, cluster="c", environ={"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"}
    )
    assert made is not None
    made.stop()


def test_an_endpoint_of_another_kind_is_refused() -> None:
    with pytest.raises(BadSettingError, match="grpc://"):
        start_tracing("kafka://somewhere", node_id=1, cluster="c", environ={})


def test_nothing_is_traced_unless_asked_for_but_the_trace_is_passed_on() -> None:
    probe = RequestProbe()
    with MeasuredRequest(probe, "publish", PARENT):
        assert current_trace.get() == PARENT
    with MeasuredRequest(probe, "publish", "nonsense"):
        assert current_trace.get() is None
    assert [(api, outcome, found.count) for api, outcome, found in probe.requests()] == [("publish", OK, 2)]


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_the_trace_of_a_batch_is_that_of_its_first_record(codec: int) -> None:
    headers = [(b"other", b"1"), (b"traceparent", PARENT.encode())]
    plain = packed_record(0, b"value", key=b"key", headers=headers) + packed_record(1, b"value", headers=[(b"traceparent", b"x")])
    records = plain if codec == NONE else compress_like(codec, memoryview(b""), plain)
    assert first_traceparent(framed(records, 2, (0, 0), attributes=codec)) == PARENT


@pytest.mark.parametrize(
    "batch",
    [
        b"",
        bytes(200),
        framed(packed_record(0, b"v"), 1, (0, 0)),
        framed(packed_record(0, b"v", headers=[(b"traceparent", b"00-zz")]), 1, (0, 0)),
        framed(packed_record(0, b"v", headers=[(b"traceparent", None)]), 1, (0, 0)),
        framed(b"\xff\xff", 1, (0, 0)),
        framed(b"not compressed", 1, (0, 0), attributes=ZSTD),
    ],
)
def test_what_has_no_trace_has_none(batch: bytes) -> None:
    assert first_traceparent(batch) is None


@pytest.mark.parametrize(
    "text", ["", "00-" + "0" * 32 + "-b7ad6b7169203331-01", PARENT.upper(), PARENT + "x", f"00-{TRACE}-{'0' * 16}-01"]
)
def test_a_traceparent_has_one_form(text: str) -> None:
    assert checked_traceparent(text) is None
    assert checked_traceparent(PARENT) == PARENT


def logged(formatter: logging.Formatter, *, extra: dict[str, object] | None = None) -> str:
    """A line of the log, with an error in it."""
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger = logging.getLogger("penstock.somewhere")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        raise ValueError("bad\nluck")
    except ValueError:
        logger.exception("it %s", "failed", extra=extra)
    finally:
        logger.removeHandler(handler)
    return stream.getvalue()


def test_a_json_line_has_all_there_is_to_know() -> None:
    token = current_trace.set(PARENT)
    try:
        line = logged(JsonFormatter(), extra={"topic": "t", "count": 3})
    finally:
        current_trace.reset(token)
    assert line.count("\n") == 1
    shown = json.loads(line)
    assert shown["time"].endswith("Z")
    assert (shown["level"], shown["logger"], shown["message"]) == ("error", "penstock.somewhere", "it failed")
    assert shown["fields"] == {"topic": "t", "count": 3}
    assert shown["error"].endswith("ValueError: bad\nluck")
    assert shown["trace_id"] == TRACE


def test_a_line_of_text_stays_one_line() -> None:
    line = logged(LineFormatter())
    assert line.count("\n") == 1
    assert "ERROR penstock.somewhere: it failed | Traceback" in line
    assert "trace_id" not in json.loads(logged(JsonFormatter()))


def test_what_is_not_http_is_told_without_its_bytes() -> None:
    error = BadHttpMessage("Invalid header value char:\n\n  b'X: secret'")
    record = logging.makeLogRecord(
        {"name": "aiohttp.server", "levelno": logging.ERROR, "msg": "Error from %s", "args": ("host",)}
    )
    record.exc_info = (type(error), error, None)
    assert ClientFaults().filter(record)
    line = LineFormatter().format(record)
    assert line.endswith("WARNING aiohttp.server: Error from host: that is not HTTP: Invalid header value char")


def test_a_client_that_went_away_and_metadata_that_is_no_text_are_no_errors_of_the_node() -> None:
    gone, bad = ConnectionResetError("gone"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no text")
    record = logging.makeLogRecord({"name": "aiohttp.server", "levelno": logging.ERROR, "msg": "Error"})
    record.exc_info = (type(gone), gone, None)
    assert not ClientFaults().filter(record)
    unsent = cygrpc.ExecuteBatchError("Failed")
    record = logging.makeLogRecord({"name": "grpc._cython.cygrpc", "levelno": logging.ERROR, "msg": "raised in core"})
    record.exc_info = (type(unsent), unsent, None)
    assert not ClientFaults().filter(record)
    record = logging.makeLogRecord({"name": "grpc._cython.cygrpc", "levelno": logging.ERROR, "msg": "Invalid encoding"})
    record.exc_info = (type(bad), bad, None)
    assert ClientFaults().filter(record)
    line = LineFormatter().format(record)
    assert "WARNING grpc._cython.cygrpc: a call has metadata that is not UTF-8" in line
    assert "Traceback" not in line
