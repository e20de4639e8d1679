"""The monitoring routes of the HTTP listener: /metrics, /healthz, /readyz."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from penstock.broker import Operation
from penstock.core.trace_context import TRACEPARENT
from penstock.gateway.measured_request import MeasuredRequest, status_outcome
from penstock.server.http import caller_of
from penstock.server.metrics import declarations as m
from penstock.server.metrics.exposition import chosen_format, exposed
from penstock.server.metrics.metric import Tier
from penstock.server.metrics.observatory import SERVING, STARTING, Observatory

API_PREFIX: Final = "/api/"
DAMAGE_SHOWN: Final = 20


def add_routes(app: web.Application, observatory: Observatory) -> None:
    """Add the routes and measure every request. The API is closed while the node does not serve."""
    app.middlewares.insert(0, _measured(observatory))
    app.middlewares.append(_while_serving(observatory))

    async def metrics(request: web.Request) -> web.Response:
        return await _metrics(request, observatory, Tier.PUBLIC)

    async def internal_metrics(request: web.Request) -> web.Response:
        return await _metrics(request, observatory, Tier.INTERNAL)

    async def healthz(request: web.Request) -> web.Response:
        illness = observatory.illness()
        return web.json_response(
            {"status": "ok"} if illness is None else {"status": "ill", "reasons": [illness]}, status=_status(illness)
        )

    async def readyz(request: web.Request) -> web.Response:
        await observatory.check_listeners()
        reasons = observatory.trouble()
        damage = observatory.damage()[:DAMAGE_SHOWN]
        state = {"status": "not ready" if reasons else "ready", "phase": observatory.phase, "reasons": reasons}
        if observatory.role:
            state = {"role": observatory.role, **state}
        shown = {**state, "damage": damage} if damage else state
        return web.json_response(shown, status=_status(reasons))

    app.router.add_get("/metrics", metrics)
    app.router.add_get("/metrics/internal", internal_metrics)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)


def _status(trouble: object) -> int:
    return 503 if trouble else 200


async def _metrics(request: web.Request, observatory: Observatory, tier: Tier) -> web.Response:
    caller_of(request).check_cluster(Operation.DESCRIBE)
    began_s = observatory.clock.monotonic()
    samples = await observatory.scrape(tier)
    content_type = chosen_format(request.headers.get("Accept", ""))
    if tier is Tier.INTERNAL:
        samples.add(m.SCRAPE_DURATION, observatory.clock.monotonic() - began_s)
    return web.Response(body=exposed(samples, content_type), headers={"Content-Type": content_type})


def _measured(observatory: Observatory) -> Middleware:
    @web.middleware
    async def measure(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        api = "unknown" if resource is None else f"{request.method} {resource.canonical}"
        with MeasuredRequest(observatory.probe, api, request.headers.get(TRACEPARENT), name=f"http {api}") as measured:
            response = await handler(request)
            measured.outcome = status_outcome(response.status)
            observatory.probe.bytes_in += request.content_length or 0
            observatory.probe.bytes_out += response.content_length or 0
            return response

    return measure


def _while_serving(observatory: Observatory) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if observatory.phase == SERVING or not request.path.startswith(API_PREFIX):
            return await handler(request)
        code = "starting" if observatory.phase == STARTING else "stopping"
        error = {"code": code, "message": f"the node is {code}; try again in a moment"}
        return web.json_response({"error": error}, status=503, headers={"Retry-After": "1"})

    return check
