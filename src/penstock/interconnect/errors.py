"""What can be wrong with a peer. Calls report these as a status; they are raised only between the parts of this layer."""

from __future__ import annotations

from enum import IntEnum

from penstock.core.errors import InvalidRequestError, UnavailableError


class ProtocolError(InvalidRequestError):
    """A peer sent bytes that are not this protocol, or damaged ones; its connection is closed."""

    code = "interconnect_protocol"


class RefusalReason(IntEnum):
    """Why a hello is refused; the numbers are part of the protocol."""

    WRONG_CLUSTER = 1
    WRONG_NODE = 2  # the address is that of another node than the caller wants
    OWN_ID = 3
    STALE_INCARNATION = 4
    VERSION = 5
    FEATURE_LEVEL = 6
    CLOCK = 7
    BUSY = 8


class PeerRefusedError(UnavailableError):
    """Two nodes do not fit together; the message says why and what to change."""

    code = "peer_refused"

    def __init__(self, reason: int, message: str) -> None:
        super().__init__(message)
        self.reason = reason
