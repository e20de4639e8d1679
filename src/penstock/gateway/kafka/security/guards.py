"""The guards of all apis. An api that has none is not served when security is on, so that none can be forgotten."""

from __future__ import annotations

from typing import Any, Final

from penstock.core.errors import PenstockError
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.security.authorization import Guard, Handler
from penstock.gateway.kafka.security.group_guards import GROUP_GUARDS
from penstock.gateway.kafka.security.topic_guards import TOPIC_GUARDS
from penstock.kafka.protocol import keys, private_keys

GUARDS: Final[dict[int, Guard]] = {**TOPIC_GUARDS, **GROUP_GUARDS}
# For everyone, or guarded where they are served.
OPEN: Final = frozenset(
    {
        keys.API_VERSIONS,
        keys.SASL_HANDSHAKE,
        keys.SASL_AUTHENTICATE,
        keys.PRODUCE,
        keys.FETCH,
        private_keys.FIND_PIECES,
        private_keys.TAKE_LEASE,
        private_keys.RENEW_LEASE,
        private_keys.RELEASE_LEASE,
    }
)


class UnguardedApiError(PenstockError):
    """An API without an access rule check."""

    code = "unguarded_api"


async def guarded(call: Call, request: Any, handler: Handler) -> Any:
    """Serve a request, as far as its client may have what it asks for."""
    key = call.request.api_key
    if key in OPEN:
        return await handler(call, request)
    guard = GUARDS.get(key)
    if guard is None:
        raise UnguardedApiError(f"api key {key} has no guard, so it is not served while security is on")
    return await guard(call, request, handler)
