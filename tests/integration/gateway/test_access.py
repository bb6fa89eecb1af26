"""Who may come in, and how a refusal looks."""

from __future__ import annotations

import json

import httpx2
import pytest
from anchorwatch.core.errors import BadSettings

from tests.integration.gateway.conftest import TOKEN, House
from tests.support.in_process import Services

OPEN = ("/healthz", "/readyz", "/openapi.json")
HOOK = "/hooks/{name}"
"""It checks the signature of its hook instead."""


async def test_every_api_path_needs_the_token(house: House) -> None:
    async with httpx2.AsyncClient(base_url=house.url) as stranger:
        for path in OPEN:
            assert (await stranger.get(path)).status_code == 200, path
        paths = (await stranger.get("/openapi.json")).json()["paths"]
        for path in {"/", "/nothing", *paths} - {*OPEN, HOOK}:
            for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
                answer = await stranger.request("POST", path, headers=given)
                assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), path
                assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_unknown_path_has_the_error_shape(house: House) -> None:
    for method, path, status in (
        ("GET", "/nothing", 404),
        ("GET", "/docs", 404),
        ("GET", "/redoc", 404),
        ("GET", "/api/sessions/", 404),
        ("GET", "/api/sessions/fleet/nothing", 404),
        ("DELETE", "/api/effects", 405),
        ("GET", "/api/sessions/FLEET", 422),
        ("GET", "/api/sessions/fl%00eet/anchor", 422),
        ("GET", "/api/effects?limit=0", 422),
        ("GET", "/api/effects?limit=201", 422),
        ("GET", "/api/effects?limit=99999999999999999999999", 422),
        ("GET", "/api/effects?cursor=nonsense", 422),
        ("GET", "/api/effects?order=up", 422),
        ("GET", "/api/effects?at_least=-1", 422),
        ("GET", "/api/sessions?status=zz", 422),
        ("GET", "/api/effects?state=bogus", 422),
        ("GET", "/api/effects?session=none", 404),
        ("GET", "/api/deliveries?session=none", 404),
        ("GET", "/api/artifacts/none/content", 404),
        ("GET", "/api/artifacts/a.b/content", 422),
    ):
        answer = await house.http.request(method, path)
        assert answer.status_code == status, (path, answer.text)
        assert set(answer.json()) >= {"code", "message", "hint"}, path


async def test_oversized_headers_are_refused(house: House) -> None:
    answer = await house.http.get("/api/sessions", headers={"X-Large": "x" * 17_000})
    assert (answer.status_code, answer.json()["code"]) == (431, "headers_too_large")


async def test_metrics_need_no_token_where_they_are_opened(services: Services) -> None:
    await services.start("memory")
    await services.start("gateway", port=0, token=TOKEN, metrics_open=True)
    url = json.loads((services.directory / "gateway.json").read_text())["url"]
    async with httpx2.AsyncClient(base_url=url) as stranger:
        assert (await stranger.get("/metrics")).status_code == 200
        assert (await stranger.get("/api/sessions")).status_code == 401


async def test_gateway_without_token_does_not_start(services: Services) -> None:
    with pytest.raises(BadSettings, match="token"):
        await services.start("gateway", port=0)


async def test_gateway_reports_a_taken_port(house: House, services: Services) -> None:
    port = httpx2.URL(house.url).port
    with pytest.raises(BadSettings, match="listen"):
        await services.start("gateway", "gateway-2", port=port, token=TOKEN)
