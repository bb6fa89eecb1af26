"""The application: routes behind their guard."""

from __future__ import annotations

from importlib.metadata import version

import structlog
from fastapi import Depends, FastAPI
from starlette.types import ASGIApp

from anchorwatch_gateway import errors
from anchorwatch_gateway.guard import Guard
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.query import refuse_unknown
from anchorwatch_gateway.routes import (
    agents,
    controls,
    events,
    integrity,
    journal,
    kill_switches,
    letters,
    lists,
    models,
    operations,
    schedules,
    sessions,
    showing,
    turns,
)

ABOUT = """Every path below `/api` wants `Authorization: Bearer TOKEN`. Lists are pages `{data, next}`; errors are
`{code, message, hint}`. A write is answered after the journal acknowledged it."""


def build(parts: Parts) -> ASGIApp:
    """The ASGI application.

    Raises:
        BadSettings: there is no bearer token.
    """
    return guarded(make(parts.log), parts)


def guarded(app: FastAPI, parts: Parts) -> ASGIApp:
    """The application at work on these parts, behind its guard. Raises as `build`."""
    app.state.parts = parts
    return Guard(app, parts.token, parts.counters.count_request, parts.log)


def make(log: structlog.stdlib.BoundLogger) -> FastAPI:
    """The routes. To make them takes time; whoever runs many gateways one after the other may make them once."""
    app = FastAPI(
        title="Anchor Watch",
        description=ABOUT,
        version=version("anchorwatch"),
        # The framework's pages load their scripts from a network that this one must not need, nor tell who looks at it.
        docs_url=None,
        redoc_url=None,
        responses=errors.PROBLEMS,
        redirect_slashes=False,
    )
    errors.install(app, log)
    for module in (
        sessions,
        controls,
        kill_switches,
        schedules,
        turns,
        showing,
        integrity,
        journal,
        events,
        lists,
        letters,
        agents,
        models,
        operations,
    ):
        app.include_router(module.router, dependencies=[Depends(refuse_unknown)])
    return app
