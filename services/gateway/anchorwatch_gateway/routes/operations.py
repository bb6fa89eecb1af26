"""For those who run it: is it alive, is it of use, and its figures."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from anchorwatch_gateway.dependencies import PartsDep
from anchorwatch_gateway.figures import refresh
from anchorwatch_gateway.health import readiness

router = APIRouter(tags=["operations"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """This process answers."""
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(parts: PartsDep) -> JSONResponse:
    """Whether it is of use: connected, the streams are there, memory answers. 503 names what is not."""
    checks = await readiness(parts)
    ready = all(state == "ok" for state in checks.values())
    content = {"status": "ok" if ready else "unavailable", "checks": checks}
    return JSONResponse(content, 200 if ready else 503)


@router.get("/metrics", response_class=Response)
async def metrics(parts: PartsDep) -> Response:
    """Figures for Prometheus."""
    await refresh(parts)
    return Response(generate_latest(parts.counters.registry), media_type=CONTENT_TYPE_LATEST)
