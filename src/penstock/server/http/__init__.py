"""The HTTP listener: the admin API with its OpenAPI document, and what is mounted beside it. It needs aiohttp and msgspec, so it
is imported only by a node that listens."""

from penstock.server.http.app import API_PREFIX, Mount, caller_of
from penstock.server.http.ending import ENDING
from penstock.server.http.figures import Figures
from penstock.server.http.listener import HttpListener
from penstock.server.http.route import Asked, Call, Nothing, Page, Route, Shown
from penstock.server.http.served import ReadersOf, Served

__all__ = [
    "API_PREFIX",
    "ENDING",
    "Asked",
    "Call",
    "Figures",
    "HttpListener",
    "Mount",
    "Nothing",
    "Page",
    "ReadersOf",
    "Route",
    "Served",
    "Shown",
    "caller_of",
]
