"""Hooks: ``POST /hooks/NAME`` takes the alerts of another system, and ``GET /api/hooks`` lists the hooks."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from http import HTTPStatus
from typing import Literal

from anchorwatch.core.errors import AnchorWatchError, BadInput, NotFound, Unavailable
from anchorwatch.core.times import iso
from anchorwatch.service.hooks import Hook
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from standardwebhooks import Webhook

from anchorwatch_gateway.errors import CONFLICT, PROBLEMS, BadRequest, Problem, Unauthorized
from anchorwatch_gateway.events import Named, NotPublished, Published, check_size, named, publish_all
from anchorwatch_gateway.guard import HOOKS_PATH, parse_json
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.requests import Page, PartsDep
from anchorwatch_gateway.state import HookState

router = APIRouter(tags=["hooks"])
listing = APIRouter(prefix="/api", tags=["hooks"])

GITHUB_SIGNATURE = "x-hub-signature-256"
_FORM = "application/x-www-form-urlencoded"


class HookAnswer(BaseModel):
    """What happened to each alert of a request, in its order."""

    hook: str
    events: list[Published | NotPublished]


class Refusal(BaseModel):
    """The last request, or alert, that a hook refused."""

    at: str
    code: str
    message: str


class ShownHook(BaseModel):
    """A hook. The numbers count since this gateway started."""

    name: str
    path: str
    kind: Literal["alertmanager", "grafana", "github", "json"]
    signature: Literal["standard-webhooks", "github", "bearer", "open"]
    workspace: str
    source: str = Field(description="source of its events, which subscriptions match")
    requests: int
    events: int
    refused: int = Field(description="requests and alerts that were refused")
    last_refusal: Refusal | None


@listing.get("/hooks")
async def list_hooks(parts: PartsDep) -> Page[ShownHook]:
    """List the hooks, by name."""
    shown = [
        ShownHook(
            name=name,
            path=f"{HOOKS_PATH}{name}",
            kind=each.hook.kind,
            signature=each.hook.signature,
            workspace=each.workspace,
            source=each.hook.origin,
            requests=each.requests,
            events=each.events,
            refused=each.refused,
            last_refusal=_refusal(each),
        )
        for name, each in sorted(parts.hooks.items())
    ]
    return Page(data=shown, next=None)


def _refusal(state: HookState) -> Refusal | None:
    if state.last is None:
        return None
    at_ms, error = state.last
    return Refusal(at=iso(at_ms), code=error.code, message=error.message)


_BODY = {
    "required": True,
    "description": "The alerts, as the other system sends them.",
    "content": {"application/json": {"schema": {}}},
}
_ANSWERS = PROBLEMS | {
    409: CONFLICT[409],
    207: {"model": HookAnswer, "description": "Some alerts were refused; each says why"},
}


@router.post(
    f"{HOOKS_PATH}{{name}}", status_code=202, responses=_ANSWERS, openapi_extra={"requestBody": _BODY}
)
async def receive_alerts(name: str, request: Request, response: Response, parts: PartsDep) -> HookAnswer:
    """Take the alerts of another system. 202 follows the server's acknowledgement of an event for each."""
    state = parts.hooks.get(name)
    if state is None:
        raise NotFound(f"there is no hook {name[:80]!r}", hint="ANCHORWATCH_HOOKS names the file of hooks")
    state.requests += 1
    try:
        headers = {key.lower(): value for key, value in request.headers.items()}
        body = await request.body()
        verify(state.hook, headers, body)
        answers = await _receive(parts, state, headers, body)
    except Unavailable:
        raise
    except AnchorWatchError as error:
        state.refuse(error, parts.clock.now_ms())
        parts.log.warning("hook.refused", hook=name, code=error.code, reason=error.message)
        raise
    if any(isinstance(each, NotPublished) for each in answers):
        response.status_code = HTTPStatus.MULTI_STATUS
    return HookAnswer(hook=name, events=answers)


async def _receive(
    parts: Parts, state: HookState, headers: Mapping[str, str], body: bytes
) -> list[Published | NotPublished]:
    """An event for each alert. One that cannot be mapped stops no other.

    Raises:
        BadInput: no alert can be mapped.
        Unavailable: an event is not confirmed; it is safe to send the request again.
    """
    if headers.get("content-type", "").lower().startswith(_FORM):
        raise BadRequest("the body is a form", hint="let the other system send JSON (application/json)")
    alerts, rest = state.hook.alerts(parse_json(body))
    mapped: list[Named | BadInput] = []
    for alert in alerts:
        try:
            event = state.hook.event_of(alert, rest, headers)
            mapped.append(check_size(named(event, source=state.hook.origin)))
        except BadInput as error:
            mapped.append(error)
    errors = [each for each in mapped if isinstance(each, BadInput)]
    events = [each for each in mapped if isinstance(each, Named)]
    if errors and not events:
        raise errors[0]
    published = iter(await publish_all(parts, state.workspace, events))
    answers: list[Published | NotPublished] = []
    for each in mapped:
        if isinstance(each, BadInput):
            state.refuse(each, parts.clock.now_ms())
            parts.log.warning("hook.alert_refused", hook=state.hook.name, code=each.code, reason=each.message)
            problem = Problem(code=each.code, message=each.message, hint=each.hint)
            answers.append(NotPublished(id="", error=problem))
            continue
        answer = next(published)
        # The sender repeats the request only if all of it failed.
        if isinstance(answer, NotPublished) and answer.error.code == Unavailable.code:
            raise Unavailable(answer.error.message, hint="send the request again: nothing is stored twice")
        answers.append(answer)
        state.events += isinstance(answer, Published) and not answer.duplicate
    return answers


def verify(hook: Hook, headers: Mapping[str, str], body: bytes) -> None:
    """Check the signature of a request; names of ``headers`` are in lower case.

    Standard Webhooks: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
    GitHub: https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries

    Raises:
        Unauthorized: it is missing or wrong; of Standard Webhooks also: its time is more than five minutes off.
    """
    secret = hook.secret.get_secret_value() if hook.secret else ""
    match hook.signature:
        case "open":
            return
        case "standard-webhooks":
            good = _is_standard(secret, headers, body)
            wanted = "webhook-id, webhook-timestamp (within five minutes) and webhook-signature"
        case "github":
            expected = "sha256=" + hmac.digest(secret.encode(), body, "sha256").hex()
            good = _same(headers.get(GITHUB_SIGNATURE, ""), expected)
            wanted = "X-Hub-Signature-256"
        case "bearer":
            scheme, _, token = headers.get("authorization", "").partition(" ")
            good = scheme.lower() == "bearer" and _same(token.strip(), secret)
            wanted = "Authorization: Bearer TOKEN"
    if not good:
        raise Unauthorized(
            f"the signature of the request to hook {hook.name} is missing or wrong",
            hint=f"send {wanted}, made with the secret of the hook",
        )


def _is_standard(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    try:
        Webhook(secret).verify(body, dict(headers), json_parse=False)
    except Exception:  # noqa: BLE001 - the library raises several, for every odd header
        return False
    return True


def _same(given: str, expected: str) -> bool:
    """Compared in a time that says nothing about the expected text."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode())
