"""What is counted of Kafka's requests, and how they are traced."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.core.probe import FAILED, OK, REFUSED, Durations, RequestProbe, Span, Tracing
from penstock.core.record_format import Octets
from penstock.core.trace_context import first_traceparent
from penstock.gateway.kafka.call import Call
from penstock.kafka.protocol import Message, Request, keys, private_keys
from penstock.kafka.protocol.fields import Splice
from penstock.kafka.protocol.produce import ProduceRequest
from penstock.kernels.produce_frame import ProduceFrame

if TYPE_CHECKING:
    from penstock.gateway.kafka.apis.fetch import FetchCall
    from penstock.gateway.kafka.apis.plain_produce import PlainProduce

AnyCall: TypeAlias = "Call | PlainProduce | FetchCall"

_NAMES: Final = {
    key: name.title().replace("_", "")
    for module in (keys, private_keys)
    for name, key in vars(module).items()
    if name.isupper() and isinstance(key, int)
}
# They are answered when others have come, which says nothing of how fast the node is.
_WAITING: Final = frozenset({"JoinGroup", "SyncGroup"})

_PRODUCED: Final = (keys.PRODUCE, OK)

ITEMS_MAX: Final = 100  # of a list are looked at: who asks for a thousand topics does not wait longer for it


class KafkaProbe(RequestProbe):
    """The requests of a Kafka listener, by api key."""

    __slots__ = ()

    def finished(self, call: AnyCall, now: float) -> None:
        """A request has its answer. Time spent waiting for messages that were not there yet is not counted."""
        outcome = FAILED if call.must_close else REFUSED if call.is_refused else OK
        durations = self.durations.get((call.api_key, outcome))
        if durations is None:
            durations = self.durations[call.api_key, outcome] = Durations()
        durations.note(now - call.began - call.waited_s)
        if call.span is not None:
            call.span.end(outcome)

    def produced(self, seconds: float) -> None:
        """A Produce request that nothing traces has been answered, without errors: what `finished` does for the most frequent."""
        durations = self.durations.get(_PRODUCED)
        if durations is None:
            durations = self.durations[_PRODUCED] = Durations()
        durations.note(seconds)

    def name_of(self, api: str | int) -> str:
        return _NAMES.get(int(api), str(api))

    def is_prompt(self, api: str) -> bool:
        return api not in _WAITING


def begin_span(tracing: Tracing, call: AnyCall) -> Span:
    """A span for a request, in the trace of its first message if it brings any."""
    if isinstance(call, Call):
        batch = first_batch_of(call.request)
    else:
        batch = call.batches[0].data if isinstance(call, ProduceFrame) else None
    name = _NAMES.get(call.api_key, str(call.api_key))
    attributes: dict[str, str | int] = {
        "messaging.system": "kafka",
        "messaging.operation.name": name,
        "penstock.api.version": call.version,
        "messaging.client.id": call.client_id or "",
    }
    return tracing.begin(f"kafka {name}", None if batch is None else first_traceparent(batch), attributes)


def first_batch_of(request: Request) -> Octets | None:
    """Returns the first batch of a Produce request; None if it has none, or is another."""
    if not isinstance(request.body, ProduceRequest):
        return None
    batches = (data.records for topic in request.body.topic_data for data in topic.partition_data)
    batch = next(batches, None)
    return None if isinstance(batch, Splice) else batch


def has_error(response: Message | None) -> bool:
    """Whether a response, or one of the first items that it lists, has an error code."""
    if response is None:
        return False
    if getattr(response, "error_code", 0):
        return True
    for name in _listing_fields(type(response)):
        if any(has_error(item) for item in (getattr(response, name) or ())[:ITEMS_MAX]):
            return True
    return False


@cache
def _listing_fields(kind: type[Message]) -> tuple[str, ...]:
    """The fields of a kind of message that list others which may have errors."""
    return tuple(
        field.name for field in kind.fields if field.kind == "array" and field.struct is not None and _may_fail(field.struct)
    )


def _may_fail(kind: type[Message]) -> bool:
    return any(field.name == "error_code" for field in kind.fields) or bool(_listing_fields(kind))
