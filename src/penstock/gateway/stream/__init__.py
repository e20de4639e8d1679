"""The stream gateway: subjects over gRPC and HTTP (seed 004). It needs the extra `stream`, so import it only to start it."""

from penstock.gateway.stream.admission import Admission
from penstock.gateway.stream.gateway import StreamGateway, stream_server
from penstock.gateway.stream.http import StreamHttp

__all__ = ["Admission", "StreamGateway", "StreamHttp", "stream_server"]
