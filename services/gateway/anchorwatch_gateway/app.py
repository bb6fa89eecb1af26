"""The application: every route, inside the guard, with its OpenAPI description."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import structlog
from fastapi import Depends, FastAPI, Request, Security
from fastapi.routing import APIRoute
from starlette.types import ASGIApp

from anchorwatch_gateway import (
    agents,
    controls,
    dead_letters,
    errors,
    events,
    hooks,
    inputs,
    journal,
    kill_switches,
    operations,
    outputs,
    schedules,
    sessions,
    turns,
)
from anchorwatch_gateway.errors import BadRequest
from anchorwatch_gateway.guard import Guard
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.requests import TOKEN

ABOUT = """Paths below `/api` need `Authorization: Bearer TOKEN`; `Anchorwatch-By` may name the caller.
Lists are pages `{data, next}`. Errors are `{code, message, hint}`.
A write is answered after the journal acknowledged it."""
TAGS = [
    {"name": "sessions", "description": "Sessions, what is sent to them, and what they did."},
    {"name": "controls", "description": "Orders of people: pause, cancel, steer, reset, kill switches."},
    {"name": "schedules", "description": "Cron schedules that wake sessions."},
    {"name": "journal", "description": "Reads and repairs of the journal itself."},
    {"name": "outputs", "description": "Effects, notifications, artifacts and memories."},
    {"name": "dead letters", "description": "Messages that a service cannot handle."},
    {"name": "agents", "description": "Agent definitions, and the models that agents call."},
    {
        "name": "hooks",
        "description": "Alerts of other systems; each hook checks a signature, no token needed.",
    },
    {"name": "operations", "description": "Health, without a token, and metrics."},
]


def build(parts: Parts) -> ASGIApp:
    """The ASGI application.

    Raises:
        BadSettings: no bearer token is set.
    """
    return guarded(make(parts.log), parts)


def guarded(app: FastAPI, parts: Parts) -> ASGIApp:
    """The application with these parts, inside its guard. Raises as `build`."""
    app.state.parts = parts
    return Guard(
        app,
        parts.token,
        parts.counters.count_request,
        parts.log,
        metrics_open=parts.settings.metrics_open,
    )


def make(log: structlog.stdlib.BoundLogger) -> FastAPI:
    """The application without its parts. It takes time to make, and can serve one gateway after another."""
    app = FastAPI(
        title="Anchor Watch",
        description=ABOUT,
        version=version("anchorwatch"),
        # The framework's own pages load scripts from a public network.
        docs_url=None,
        redoc_url=None,
        openapi_tags=TAGS,
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
    )
    errors.install(app, log)
    for module in (
        sessions,
        inputs,
        events,
        turns,
        controls,
        kill_switches,
        schedules,
        journal,
        outputs,
        dead_letters,
        agents,
    ):
        guards = [Security(TOKEN), Depends(refuse_unknown_parameters)]
        app.include_router(module.router, dependencies=guards, responses=errors.PROBLEMS)
    app.include_router(hooks.listing, dependencies=guards, responses=errors.PROBLEMS)
    app.include_router(hooks.router)
    app.include_router(operations.router)
    return app


def _operation_id(route: APIRoute) -> str:
    return route.name


async def refuse_unknown_parameters(request: Request) -> None:
    """Refuse a misspelt query parameter: ignoring a filter would return too much.

    Raises:
        BadRequest: the path has no such parameter; the hint lists its parameters.
    """
    given = request.query_params.keys()
    if not given:
        return
    described: dict[str, Any] = request.app.openapi()["paths"][request.scope["route"].path]
    parameters = described[request.method.lower()].get("parameters", ())
    known = sorted(each["name"] for each in parameters if each["in"] == "query")
    unknown = sorted(set(given) - set(known))
    if unknown:
        hint = f"known: {', '.join(known)}" if known else "this path takes no parameters"
        raise BadRequest(f"unknown parameter {unknown[0][:80]!r}", hint=hint)
