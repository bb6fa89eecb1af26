"""The signature of a request to a hook: each scheme accepts its own, and nothing else."""

from __future__ import annotations

import base64
import hmac
from datetime import UTC, datetime, timedelta

import pytest
from anchorwatch.service.hooks import Hook
from anchorwatch_gateway.errors import Unauthorized
from anchorwatch_gateway.hooks import verify
from standardwebhooks import Webhook

SECRET = "a secret of the other system"
STANDARD = "whsec_" + base64.b64encode(SECRET.encode()).decode()
BODY = b'{"alerts": []}'


def hook(signature: str, secret: str = SECRET) -> Hook:
    return Hook.model_validate({"name": "h", "kind": "grafana", "signature": signature, "secret": secret})


def github(body: bytes = BODY, secret: str = SECRET) -> dict[str, str]:
    return {"x-hub-signature-256": "sha256=" + hmac.digest(secret.encode(), body, "sha256").hex()}


def standard(minutes_ago: float = 0, body: bytes = BODY, secret: str = STANDARD) -> dict[str, str]:
    at = datetime.now(UTC) - timedelta(minutes=minutes_ago)
    signature = Webhook(secret).sign("msg_1", at, body.decode())
    return {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": signature,
    }


def test_signed_requests_are_accepted() -> None:
    verify(hook("github"), github(), BODY)
    verify(hook("bearer"), {"authorization": f"Bearer {SECRET}"}, BODY)
    verify(hook("bearer"), {"authorization": f"bearer  {SECRET} "}, BODY)
    verify(hook("standard-webhooks", STANDARD), standard(), BODY)
    rotated = standard(secret=STANDARD[:-4] + "AAAA")["webhook-signature"]
    signed = standard()
    signed["webhook-signature"] = f"v2,AAAA {rotated} {signed['webhook-signature']}"
    verify(hook("standard-webhooks", STANDARD), signed, BODY)


@pytest.mark.parametrize(
    ("signature", "headers", "body"),
    [
        ("github", {}, BODY),
        ("github", github(), BODY + b" "),
        ("github", github(secret="another secret"), BODY),
        ("github", {"x-hub-signature-256": "sha256="}, BODY),
        ("github", {"x-hub-signature-256": github()["x-hub-signature-256"][7:]}, BODY),
        ("github", {"x-hub-signature": github()["x-hub-signature-256"]}, BODY),
        ("github", {"x-hub-signature-256": github()["x-hub-signature-256"][:-1]}, BODY),
        ("github", {"authorization": f"Bearer {SECRET}"}, BODY),
        ("bearer", {}, BODY),
        ("bearer", {"authorization": SECRET}, BODY),
        ("bearer", {"authorization": f"Basic {SECRET}"}, BODY),
        ("bearer", {"authorization": f"Bearer {SECRET}x"}, BODY),
        ("bearer", {"authorization": "Bearer "}, BODY),
        ("bearer", {"authorization": "Bearer \udcff\u00e9"}, BODY),
        ("standard-webhooks", {}, BODY),
        ("standard-webhooks", standard(), BODY + b" "),
        ("standard-webhooks", standard(minutes_ago=6), BODY),
        ("standard-webhooks", standard(minutes_ago=-600), BODY),
        ("standard-webhooks", {**standard(), "webhook-id": "msg_2"}, BODY),
        ("standard-webhooks", {**standard(), "webhook-timestamp": "nan"}, BODY),
        ("standard-webhooks", {**standard(), "webhook-signature": "v1"}, BODY),
        ("standard-webhooks", {**standard(), "webhook-signature": "v1,!"}, BODY),
        ("standard-webhooks", standard(), b"\xff"),
    ],
)
def test_request_with_another_signature_is_refused(
    signature: str, headers: dict[str, str], body: bytes
) -> None:
    made = hook(signature, STANDARD if signature == "standard-webhooks" else SECRET)
    with pytest.raises(Unauthorized) as refused:
        verify(made, headers, body)
    assert SECRET not in str(refused.value)


def test_open_hook_needs_no_signature() -> None:
    verify(Hook.model_validate({"name": "h", "kind": "grafana", "signature": "open"}), {}, BODY)
