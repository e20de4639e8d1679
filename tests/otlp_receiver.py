"""Receivers of traces by OTLP, over HTTP and over gRPC, as a collector has them: they decode what comes and keep it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Receiver:
    """Takes what an exporter sends, and decodes it."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []

    def spans(self) -> list[Span]:
        """Every span that came."""
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def resource(self) -> dict[str, str]:
        """What the sender says it is."""
        return {one.key: one.value.string_value for one in self.requests[0].resource_spans[0].resource.attributes}


@contextmanager
def otlp_receiver() -> Iterator[tuple[Receiver, str]]:
    """A receiver, and where it is."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()
            self.wfile.write(ExportTraceServiceResponse().SerializeToString())

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def otlp_grpc_receiver() -> Iterator[tuple[Receiver, str]]:
    """The same over gRPC."""
    receiver = Receiver()

    def export(request: ExportTraceServiceRequest, _: object) -> ExportTraceServiceResponse:
        receiver.requests.append(request)
        return ExportTraceServiceResponse()

    method = grpc.unary_unary_rpc_method_handler(
        export,
        request_deserializer=ExportTraceServiceRequest.FromString,
        response_serializer=ExportTraceServiceResponse.SerializeToString,
    )
    server = grpc.server(ThreadPoolExecutor(2))
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {"Export": method})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield receiver, f"grpc://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def attributes_of(span: Span) -> dict[str, str]:
    """The attributes of a span that are texts."""
    return {one.key: one.value.string_value for one in span.attributes}
