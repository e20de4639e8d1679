"""What a client can be told: the node was not reached, or it answered with an error."""

from __future__ import annotations

from penstock.core.errors import PenstockError, UnavailableError
from penstock.kafka.protocol import errors


class BrokerUnreachableError(UnavailableError):
    """No node could be reached, or none answered in time. Whether the request was carried out is not known."""

    code = "broker_unreachable"


class BrokerRefusedError(PenstockError):
    """A node does not serve this client: it is no Kafka node, speaks no common version, or rejects the sign-in."""

    code = "broker_refused"


class RequestRefusedError(BrokerRefusedError):
    """A node answered a request with an error code. `subject` is what the request was about."""

    def __init__(self, subject: str, error_code: int, reason: str | None = None) -> None:
        self.subject = subject
        self.error_code = error_code
        self.reason = reason
        super().__init__(f"{subject}: {errors.error_name(error_code)}{f'; {reason}' if reason else ''}")


def is_retriable(error: PenstockError) -> bool:
    """Whether the same call may succeed later."""
    return errors.is_retriable(error.error_code) if isinstance(error, RequestRefusedError) else error.retriable
