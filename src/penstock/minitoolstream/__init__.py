"""The messages of `minitoolstream.proto`, made from its compiled form beside it, so that any version of protobuf will do. Apart
from the gateway, since clients need them too.

After a change of the .proto file: python -m grpc_tools.protoc -I . -o minitoolstream.binpb minitoolstream.proto
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

PACKAGE: Final = "minitoolstream"
TIME_MS_MIN: Final = -62_135_596_800_000
TIME_MS_MAX: Final = 253_402_300_799_999

_pool = descriptor_pool.Default()
for _file in descriptor_pb2.FileDescriptorSet.FromString(
    files("penstock.minitoolstream").joinpath("minitoolstream.binpb").read_bytes()
).file:
    _pool.Add(_file)

SERVICES: Final = tuple(_pool.FindServiceByName(f"{PACKAGE}.{_name}") for _name in ("IngressService", "EgressService"))
Timestamp: Any = timestamp_pb2.Timestamp


def message(name: str) -> Any:
    """The class of a message by its name."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


PublishRequest = message("PublishRequest")
PublishResponse = message("PublishResponse")
PublishBatchRequest = message("PublishBatchRequest")
PublishBatchResponse = message("PublishBatchResponse")
UploadHeader = message("UploadHeader")
UploadRequest = message("UploadRequest")
SubscribeRequest = message("SubscribeRequest")
Notification = message("Notification")
FetchRequest = message("FetchRequest")
Message = message("Message")
GetLastSequenceRequest = message("GetLastSequenceRequest")
GetLastSequenceResponse = message("GetLastSequenceResponse")
AckRequest = message("AckRequest")
AckResponse = message("AckResponse")
ReadRequest = message("ReadRequest")
DownloadRequest = message("DownloadRequest")
PayloadInfo = message("PayloadInfo")
DownloadResponse = message("DownloadResponse")
ConfigureConsumerRequest = message("ConfigureConsumerRequest")
ConfigureConsumerResponse = message("ConfigureConsumerResponse")
GetConsumersRequest = message("GetConsumersRequest")
GetConsumersResponse = message("GetConsumersResponse")
Consumer = message("Consumer")


def timestamp(time_ms: int) -> Any:
    """A time in milliseconds since 1970 as the protocol has it, which knows the years 1 to 9999; Kafka clients write any."""
    seconds, rest = divmod(min(max(time_ms, TIME_MS_MIN), TIME_MS_MAX), 1000)
    return Timestamp(seconds=seconds, nanos=rest * 1_000_000)
