"""A server of YDB topics that does nothing: it acknowledges what is written, keeps none of it, and sends prepared messages.

It finds numbers and packs acknowledgements by the node's own kernels, so that it takes next to nothing of the CPU both share:
what the SDK reaches against it is what the SDK itself can do; run as `python -m bench.ydb_null`, it prints its port."""

from __future__ import annotations

import os
from typing import Any

import grpc
import uvloop

from penstock.gateway.ydb.plain_request import parse_plain_request
from penstock.gateway.ydb.protos import RAW, Status, discovery, operation, timestamp, topic
from penstock.gateway.ydb.write_acks import write_response
from penstock.queue import WriteResult

MESSAGES = 20_000
MESSAGE_BYTES = 1024
ANSWER_MESSAGES = 1000
_Read, _Write = topic.StreamReadMessage, topic.StreamWriteMessage


async def main() -> None:
    """Serve until killed."""
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)])
    port = server.add_insecure_port("127.0.0.1:0")

    async def list_endpoints(_: Any, __: Any) -> Any:
        found = discovery.ListEndpointsResult()
        found.endpoints.add(address="127.0.0.1", port=port)
        answer = operation.Operation(ready=True, status=Status.SUCCESS)
        answer.result.Pack(found)
        return discovery.ListEndpointsResponse(operation=answer)

    answers = _answers()

    async def read(_: Any, context: Any) -> None:
        await _serve_read(context, answers)

    handler = grpc.unary_unary_rpc_method_handler(
        list_endpoints,
        request_deserializer=discovery.ListEndpointsRequest.FromString,
        response_serializer=discovery.ListEndpointsResponse.SerializeToString,
    )
    streams = {"StreamWrite": _stream(_Write, _serve_write), "StreamRead": _stream(_Read, read)}
    server.add_generic_rpc_handlers(
        [
            grpc.method_handlers_generic_handler("Ydb.Discovery.V1.DiscoveryService", {"ListEndpoints": handler}),
            grpc.method_handlers_generic_handler("Ydb.Topic.V1.TopicService", streams),
        ]
    )
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


def _stream(protos: Any, serve: Any) -> Any:
    return grpc.stream_stream_rpc_method_handler(
        serve,
        request_deserializer=bytes,
        response_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
    )


async def _serve_write(_: Any, context: Any) -> None:
    await context.read()
    codecs = topic.SupportedCodecs(codecs=[RAW])
    await context.write(_Write.FromServer(status=Status.SUCCESS, init_response=_Write.InitResponse(supported_codecs=codecs)))
    while (raw := await context.read()) is not grpc.aio.EOF:
        request = parse_plain_request(raw)
        assert request is not None
        result = WriteResult(int(request.seqnos[0]), duplicate=False)
        await context.write(write_response(request.seqnos, 0, [(len(request.seqnos), result)], partition=0, waited_s=0.0))


async def _serve_read(context: Any, answers: list[bytes]) -> None:
    await context.read()
    await context.write(_Read.FromServer(status=Status.SUCCESS, init_response=_Read.InitResponse(session_id="null")))
    start = _Read.StartPartitionSessionRequest(partition_session={"partition_session_id": 1, "path": "topic"})
    await context.write(_Read.FromServer(status=Status.SUCCESS, start_partition_session_request=start))
    credit, left = 0, list(reversed(answers))
    while (message := await context.read()) is not grpc.aio.EOF:
        credit += _Read.FromClient.FromString(message).read_request.bytes_size
        while credit > 0 and left:
            await context.write(left.pop())
            credit -= ANSWER_MESSAGES * MESSAGE_BYTES


def _answers() -> list[bytes]:
    data, now = os.urandom(MESSAGE_BYTES), timestamp(1_700_000_000_000)
    made: list[bytes] = []
    for first in range(0, MESSAGES, ANSWER_MESSAGES):
        batch = _Read.ReadResponse.Batch(producer_id="source", codec=RAW, written_at=now)
        for offset in range(first, first + ANSWER_MESSAGES):
            batch.message_data.add(
                offset=offset,
                seq_no=offset + 1,
                created_at=now,
                data=data,
                uncompressed_size=len(data),
                message_group_id="source",
            )
        response = _Read.ReadResponse(bytes_size=ANSWER_MESSAGES * MESSAGE_BYTES)
        response.partition_data.add(partition_session_id=1, batches=[batch])
        made.append(_Read.FromServer(status=Status.SUCCESS, read_response=response).SerializeToString())
    return made


if __name__ == "__main__":
    uvloop.run(main())
