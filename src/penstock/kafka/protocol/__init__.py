"""The Kafka wire protocol: messages, their codecs, and the frames they travel in. No I/O happens here.

A server reads a frame and answers it::

    request = decode_request(frame)            # frame: the bytes after the 4-byte size; records stay views of it
    request.api_key, request.api_version, request.correlation_id, request.client_id
    body = request.body                        # e.g. protocol.produce.ProduceRequest

    response = ProduceResponse(responses=[...])
    buffers, size = encode_response(request.api_key, request.api_version, request.correlation_id, response)
    transport.writelines(buffers)              # size prefix and header included; `size` counts every byte of it

`decode_request` raises `UnsupportedVersionError`, which names the key, the version and the correlation id, when there is no such
api or version (answer ApiVersions with version 0 then, hang up on all others), and `ProtocolError` for anything malformed (hang
up). No other exception leaves it, whatever the bytes, and no length is believed before it is held against the bytes left: a
message takes at most some 60 times the memory of its frame, which the server bounds by bounding the frame.

Messages are slotted classes in one module an area: `produce`, `fetch`, `offsets`, `metadata`, `topics`, `configs`, `cluster`,
`groups`, `consumer_groups`, `share_groups`, `transactions`, `acls`, `quotas`, `sasl`. Every field has a default, so
`FetchResponse(session_id=7)` is complete. One class serves all versions: a field that a version does not have keeps its default
when read and is left out when written. Fields are named as in Kafka's descriptions, in snake case. Types: a uuid is 16 `bytes`
(`ZERO_UUID` when unset), an array a `list`, a nullable field may be `None`, a tagged struct is `None` when absent, and `records`
is a `memoryview` when read, and when written any buffer or a `Splice(pieces, size)`: a sequence of buffers and opaque objects
(pieces of files) of `size` bytes in all, which come out in `buffers` as they are.

`APIS[key]` is an `Api`: `key`, `name`, `min_version`, `max_version`, `first_flexible`, `supports(version)`, and, importing the
area's module at first use, `request_class` and `response_class`. `advertised_min` differs from `min_version` for Produce alone.
`keys` names the api keys (`keys.FETCH`), `errors` Kafka's error codes (`errors.UNKNOWN_TOPIC_OR_PARTITION`, `error_name(code)`).
`PRIVATE_APIS` are Penstock's own, with keys in `private_keys`.
`encode_request` and `decode_response` are the client's side of the same.
"""

from __future__ import annotations

from penstock.kafka.protocol import errors, keys, private_keys
from penstock.kafka.protocol.fields import ZERO_UUID, Message, Splice
from penstock.kafka.protocol.frame import Request, decode_request, decode_response, encode_request, encode_response
from penstock.kafka.protocol.registry import APIS, PRIVATE_APIS, Api
from penstock.kafka.protocol.wire import ProtocolError, UnsupportedVersionError

__all__ = [
    "APIS",
    "PRIVATE_APIS",
    "ZERO_UUID",
    "Api",
    "Message",
    "ProtocolError",
    "Request",
    "Splice",
    "UnsupportedVersionError",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "errors",
    "keys",
    "private_keys",
]
