"""ApiVersions: what this node speaks."""

from __future__ import annotations

import re
from typing import Final

from penstock.gateway.kafka.call import Call
from penstock.kafka.protocol import PRIVATE_APIS, errors
from penstock.kafka.protocol.cluster import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

UNKNOWN_VERSION: Final = "\0"  # no client's name: stands for a request in a version that is not known
OWN_SOFTWARE: Final = "penstock"  # told of the private apis as well
NAMED_FROM = 3

# Features that clients look for, each with its highest version; all of them are switched on.
FEATURES: Final[dict[str, int]] = {
    "group.version": 1,  # groups whose partitions the broker assigns
    "transaction.version": 2,  # the epoch of a producer rises with every transaction, and Produce adds partitions itself
}
FEATURES_EPOCH = 1  # features change with the release alone, so there is one epoch of them

_PRIVATE: Final = [
    ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version) for api in PRIVATE_APIS.values()
]
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
    if request.client_software_name == OWN_SOFTWARE:
        advertised = advertised + _PRIVATE
    return ApiVersionsResponse(
        api_keys=advertised,
        supported_features=[
            SupportedFeatureKey(name=name, min_version=1, max_version=version) for name, version in FEATURES.items()
        ],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=version, min_version_level=version)
            for name, version in FEATURES.items()
        ],
    )
