"""The HTTP listener: the admin API with its OpenAPI document, and applications mounted beside it. It needs aiohttp and msgspec,
so it is imported only if the listener is on.

It is a gateway by nature, but part of the server: it shows what only the server knows, the settings, the other listeners and the
metrics, which a layer below could not import.
"""

from penstock.server.http.app import API_PREFIX, Mount, caller_of
from penstock.server.http.figures import Figures
from penstock.server.http.listener import HttpListener
from penstock.server.http.node_context import NodeContext, ReadersOf
from penstock.server.http.route import OPEN_HANDLERS, SHUTDOWN, Call, Nothing, Page, RequestModel, ResponseModel, Route

__all__ = [
    "API_PREFIX",
    "OPEN_HANDLERS",
    "SHUTDOWN",
    "Call",
    "Figures",
    "HttpListener",
    "Mount",
    "NodeContext",
    "Nothing",
    "Page",
    "ReadersOf",
    "RequestModel",
    "ResponseModel",
    "Route",
    "caller_of",
]
