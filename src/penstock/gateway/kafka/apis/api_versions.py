"""ApiVersions: what this node speaks."""

from __future__ import annotations

import re
from typing import Final

from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.protocol import errors
from penstock.gateway.kafka.protocol.cluster import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

UNKNOWN_VERSION: Final = "\0"  # no client's name: stands for a request in a version that is not known
NAMED_FROM = 3

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def api_versions(call: Call, advertised: list[ApiVersion]) -> ApiVersionsResponse:
    """The apis and versions that are served."""
    request = call.request.body
    assert isinstance(request, ApiVersionsRequest)
    if request.client_software_name == UNKNOWN_VERSION:
        return ApiVersionsResponse(error_code=errors.UNSUPPORTED_VERSION, api_keys=advertised)
    if call.version >= NAMED_FROM and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=errors.INVALID_REQUEST)
    return ApiVersionsResponse(api_keys=advertised)
