"""What etcd's errors mean to a caller: try elsewhere, sign in again, give up, or look what became of it. No I/O."""

from __future__ import annotations

import enum

import grpc

from penstock.coordination.port import CompactedError, CoordinationRefusedError, CoordinationUnavailableError
from penstock.core.errors import InvalidRequestError, OutOfSpaceError, PenstockError


class Failure(enum.Enum):
    """Kinds of failed calls."""

    ELSEWHERE = "elsewhere"  # this endpoint cannot serve now, and what it was asked may have been done
    NOT_DONE = "not_done"  # cannot be served now, and was not done for certain
    SIGN_IN = "sign_in"  # the token has ended; was not done
    NO_LEASE = "no_lease"
    FULL = "full"
    COMPACTED = "compacted"
    REFUSED = "refused"  # by user, password or certificate
    INVALID = "invalid"


# etcd tells most of its errors apart by their text alone.
_BY_TEXT = {
    "requested lease not found": Failure.NO_LEASE,
    "database space exceeded": Failure.FULL,
    "required revision has been compacted": Failure.COMPACTED,
    "invalid auth token": Failure.SIGN_IN,
    "revision of auth store is old": Failure.SIGN_IN,
    "too many requests": Failure.NOT_DONE,
    "authentication is not enabled": Failure.REFUSED,
    "authentication failed": Failure.REFUSED,
    "user name is empty": Failure.REFUSED,
    "permission denied": Failure.REFUSED,
    "no leader": Failure.ELSEWHERE,
    "SSL_ERROR_SSL": Failure.REFUSED,  # the handshake failed, not the network
    "Hostname Verification Check failed": Failure.REFUSED,
}
_BY_CODE = {
    grpc.StatusCode.UNAUTHENTICATED: Failure.SIGN_IN,
    grpc.StatusCode.PERMISSION_DENIED: Failure.REFUSED,
    grpc.StatusCode.INVALID_ARGUMENT: Failure.INVALID,
    grpc.StatusCode.UNIMPLEMENTED: Failure.INVALID,
}


def failure_of(code: grpc.StatusCode, details: str) -> Failure:
    """What kind of failure an error of gRPC is."""
    for text, failure in _BY_TEXT.items():
        if text in details:
            return failure
    return _BY_CODE.get(code, Failure.ELSEWHERE)


def error_of(failure: Failure, what: str, details: str) -> PenstockError:
    """The error that a caller gets."""
    if failure is Failure.FULL:
        return OutOfSpaceError(
            f"{what}: etcd has no space left ({details});"
            " compact and defragment it or raise its quota, then disarm its NOSPACE alarm"
        )
    if failure is Failure.COMPACTED:
        return CompactedError(f"{what}: {details}")
    if failure in (Failure.REFUSED, Failure.SIGN_IN):
        return CoordinationRefusedError(f"{what}: etcd refuses us ({details}); check its user, password, certificate and CA")
    if failure is Failure.INVALID:
        return InvalidRequestError(f"{what}: {details}")
    return CoordinationUnavailableError(f"{what}: {details}")
