"""How the nodes of a cluster call each other: frames over TLS or Unix sockets, a deadline for each call, bounded memory."""

from penstock.interconnect.connection import Connection
from penstock.interconnect.errors import PeerRefusedError, ProtocolError, RefusalReason
from penstock.interconnect.hello import NodeIdentity, Peer
from penstock.interconnect.interconnect import Interconnect
from penstock.interconnect.link import Link
from penstock.interconnect.network import Network, NetworkListener, SocketNetwork
from penstock.interconnect.options import InterconnectOptions
from penstock.interconnect.probe import LinkProbe, ServiceProbe
from penstock.interconnect.service import Handler, ServedCall, Service
from penstock.interconnect.status import Buffer, CallStatus, Parts, Reply
from penstock.interconnect.tls import TlsFiles

__all__ = [
    "Buffer",
    "CallStatus",
    "Connection",
    "Handler",
    "Interconnect",
    "InterconnectOptions",
    "Link",
    "LinkProbe",
    "Network",
    "NetworkListener",
    "NodeIdentity",
    "Parts",
    "Peer",
    "PeerRefusedError",
    "ProtocolError",
    "RefusalReason",
    "Reply",
    "ServedCall",
    "Service",
    "ServiceProbe",
    "SocketNetwork",
    "TlsFiles",
]
