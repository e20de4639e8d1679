"""Exports traces of requests over OTLP with OpenTelemetry's SDK, if an endpoint is configured."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock import __version__
from penstock.core.probe import FAILED, REFUSED
from penstock.core.trace_context import TRACEPARENT
from penstock.server.errors import BadSettingError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as OtelSpan

ENDPOINT_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOL_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
GRPC: Final = "grpc"
HTTP_PATH: Final = "/v1/traces"
STOP_S: Final = 3.0


class RequestSpan:
    """The span of one request."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, span: OtelSpan) -> None:
        self._span = span
        context = span.get_span_context()
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"

    def end(self, outcome: str) -> None:
        """End the span."""
        from opentelemetry.trace import StatusCode

        self._span.set_attribute("penstock.outcome", outcome)
        if outcome in (REFUSED, FAILED):
            self._span.set_attribute("error.type", outcome)
        if outcome == FAILED:
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


class OtelTracing:
    """Creates spans and exports them in the background; spans that cannot be exported are dropped."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("penstock", __version__)
        self._kind = SpanKind.SERVER
        self._extract = TraceContextTextMapPropagator().extract

    def begin(self, name: str, traceparent: str | None = None, attributes: Mapping[str, str | int] | None = None) -> RequestSpan:
        """Begin a span, as a part of the client's trace if it sent one."""
        context = None if traceparent is None else self._extract({TRACEPARENT: traceparent})
        return RequestSpan(self._tracer.start_span(name, context, self._kind, dict(attributes or {})))

    def stop(self) -> None:
        """Export the remaining spans within a short timeout. It blocks, so call it in a thread."""
        # The exporter retries an unreachable collector for much longer than a shutdown should take.
        last = threading.Thread(target=self._provider.shutdown, name="penstock-last-spans", daemon=True)
        last.start()
        last.join(STOP_S)


def start_tracing(
    endpoint: str | None, *, node_id: int, cluster: str, environ: Mapping[str, str] = os.environ
) -> OtelTracing | None:
    """Start tracing to `endpoint`, or to the one in OpenTelemetry's environment variables. Returns None if neither is set."""
    wanted = endpoint or next((environ[name] for name in ENDPOINT_VARIABLES if environ.get(name)), None)
    if wanted is None or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise BadSettingError(
            f"traces are to be sent to {wanted}, but {error.name} is not installed; run: pip install 'penstock[otel]', or set "
            f"otel_endpoint to none"
        ) from error
    own = {"service.name": "penstock", "service.version": __version__, "service.instance.id": f"{cluster}-{node_id}"}
    if environ.get("OTEL_SERVICE_NAME"):
        del own["service.name"]  # the SDK takes it from there
    provider = TracerProvider(resource=Resource.create(own), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_exporter(endpoint, environ)))
    return OtelTracing(provider)


def _exporter(endpoint: str | None, environ: Mapping[str, str]) -> Any:
    """The exporter: gRPC or HTTP by the endpoint's scheme or OpenTelemetry's variable; HTTP by default."""
    protocol = next((environ[name] for name in PROTOCOL_VARIABLES if environ.get(name)), "")
    scheme, _, rest = (endpoint or "").partition("://")
    try:
        if scheme == GRPC or (not scheme and protocol == GRPC):
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

            # Without an endpoint of ours, the exporter reads the variables itself.
            return GrpcExporter(endpoint=f"http://{rest}", insecure=True) if scheme == GRPC else GrpcExporter()
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
    except ModuleNotFoundError as error:
        raise BadSettingError(
            f"traces cannot be sent, since {error.name} is not installed; run: pip install 'penstock[otel]'"
        ) from error
    if not endpoint:
        return HttpExporter()
    if scheme not in ("http", "https"):
        raise BadSettingError(f"otel_endpoint is {endpoint}; it must begin with http://, https:// or grpc://")
    return HttpExporter(endpoint=endpoint if endpoint.rstrip("/").endswith(HTTP_PATH) else endpoint.rstrip("/") + HTTP_PATH)
