"""Hooks: the file that the setting ``hooks`` names, and how an alert of another system becomes an event.

Format: docs/events.md. The shapes of bodies are those that these pages document:

- Alertmanager, version 4: https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
- Grafana: https://grafana.com/docs/grafana/latest/alerting/configure-notifications/manage-contact-points/integrations/webhook-notifier/
- GitHub: https://docs.github.com/en/webhooks/webhook-events-and-payloads#delivery-headers
"""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, SecretStr, StringConstraints, ValidationError, model_validator
from standardwebhooks import Webhook

from anchorwatch import cel
from anchorwatch.codec import cloudevents
from anchorwatch.codec.cloudevents import CloudEvent
from anchorwatch.codec.plain import plain
from anchorwatch.core.errors import BadInput, BadSettings
from anchorwatch.core.faults import problem_of
from anchorwatch.core.names import NAME_PATTERN
from anchorwatch.service import logs

SECRET_CHARS_MIN = 16
ID_CHARS_MAX = 128
FIELDS: Final = ("type", "fingerprint", "status", "began", "time", "priority", "subject", "data")
"""What a mapping may set."""
PRIORITIES: Final = ("P0", "P1", "P2")

Kind = Literal["alertmanager", "grafana", "github", "json"]
Signature = Literal["standard-webhooks", "github", "bearer", "open"]
Name = Annotated[str, StringConstraints(pattern=f"^{NAME_PATTERN}$")]

_OF_ALERTS: Final = {
    "type": '"alert." + alert.status',
    "fingerprint": "alert.fingerprint",
    "status": "alert.status",
    "began": "alert.startsAt",
    "time": 'alert.status == "resolved" ? alert.endsAt : alert.startsAt',
    "subject": '"alertname" in alert.labels ? alert.labels.alertname : alert.fingerprint',
    "priority": (
        'alert.status == "firing" && "severity" in alert.labels && alert.labels.severity == "critical" ? "P0" : "P1"'
    ),
}
USUAL: Final[Mapping[Kind, Mapping[str, str]]] = {
    "alertmanager": _OF_ALERTS,
    "grafana": _OF_ALERTS,
    "github": {
        "type": 'headers["x-github-event"] + ("action" in alert ? "." + alert.action : "")',
        "fingerprint": 'headers["x-github-delivery"]',
    },
    "json": {},
}
"""CEL for the fields that the mapping of a hook does not give."""
_SECRET_HEADER = re.compile("authorization|cookie|signature|token|secret|key", re.IGNORECASE)


class Hook(BaseModel):
    """One ``[[hook]]``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    kind: Kind
    signature: Signature
    event: str = "{}"
    workspace: Name | None = None
    source: Name | None = None
    secret: SecretStr | None = None
    secret_file: Path | None = None

    @model_validator(mode="before")
    @classmethod
    def _signed(cls, given: Any) -> Any:  # noqa: ANN401 - what the file says
        if isinstance(given, dict) and "signature" not in given:
            raise ValueError(
                'has no signature: anyone could send events; choose one, or say signature = "open"'
            )
        return given

    @model_validator(mode="after")
    def _complete(self) -> Hook:
        has_secret = self.secret is not None or self.secret_file is not None
        if self.signature == "open" and has_secret:
            raise ValueError("is open, and has a secret that nothing would check; remove one of them")
        if self.signature != "open" and not has_secret:
            raise ValueError("needs a secret or a secret_file, to check signatures with")
        return self

    @property
    def origin(self) -> str:
        """The source in the subject of its events."""
        return self.source or self.name

    # --- mapping

    def alerts(self, body: Any) -> tuple[Sequence[Any], Any]:  # noqa: ANN401 - any JSON value
        """The alerts in a body, each of which is an event, and the rest of the body.

        Raises:
            BadInput: the body has another shape.
        """
        if self.kind not in ("alertmanager", "grafana"):
            return [body], {}
        alerts = body.get("alerts") if isinstance(body, dict) else None
        if not isinstance(alerts, list):
            raise BadInput("the body has no list `alerts`", hint=f"hook {self.name} is of kind {self.kind}")
        return alerts, {name: value for name, value in body.items() if name != "alerts"}

    def event_of(self, alert: Any, body: Any, headers: Mapping[str, str]) -> CloudEvent:  # noqa: ANN401 - JSON
        """The event of an alert. Its id follows from fingerprint, status and begin: a repetition has the same.

        Raises:
            BadInput: the mapping cannot be evaluated, or has an invalid result.
        """
        shown = {name: value for name, value in headers.items() if not _SECRET_HEADER.search(name)}
        values = {"alert": alert, "body": body, "headers": shown}
        fields = self._mapped(values)
        for name, expression in USUAL[self.kind].items():
            if name not in fields:
                fields[name] = self._evaluate(expression, values)
        for name in ("type", "fingerprint"):
            if not isinstance(fields.get(name), str) or not fields[name]:
                raise BadInput(f"the mapping of hook {self.name} gives no text for {name!r}", hint=_HINT)
        if fields.get("priority") and fields["priority"] not in PRIORITIES:
            raise BadInput(
                f"the mapping of hook {self.name} gives the priority {str(fields['priority'])[:40]!r}",
                hint=f"known: {', '.join(PRIORITIES)}",
            )
        said = {name: fields[name] for name in ("status", "time", "priority", "subject") if fields.get(name)}
        content = {
            **said,
            "specversion": cloudevents.SPECVERSION,
            "id": _event_id(fields),
            "source": f"/hooks/{self.name}",
            "type": fields["type"],
            "fingerprint": fields["fingerprint"],
            "datacontenttype": "application/json",
            "data": plain(fields.get("data", alert)),
        }
        try:
            return cloudevents.from_json(content)
        except BadInput as error:
            raise BadInput(f"the mapping of hook {self.name}: {error.message}", hint=_HINT) from None

    def _mapped(self, values: Mapping[str, Any]) -> dict[str, Any]:
        found = self._evaluate(self.event, values)
        unknown = sorted(set(map(str, found)) - set(FIELDS)) if isinstance(found, dict) else [repr(found)]
        if not isinstance(found, dict) or unknown:
            raise BadInput(
                f"the mapping of hook {self.name} gives {unknown[0][:80]}",
                hint=f"it gives a map with some of {', '.join(FIELDS)}",
            )
        return dict(found)

    def _evaluate(self, expression: str, values: Mapping[str, Any]) -> object:
        try:
            return cel.evaluate(expression, values)
        except KeyError as error:
            raise MissingField(
                f"hook {self.name}: the alert has no field {str(error)[:80]}", hint=_HINT
            ) from None
        except BadInput as error:
            raise BadInput(f"the mapping of hook {self.name}: {error.message}", hint=error.hint) from None
        except Exception as error:  # noqa: BLE001 - the library raises several
            raise BadInput(f"the mapping of hook {self.name}: {str(error)[:300]}", hint=_HINT) from None

    def __str__(self) -> str:
        where = f" to workspace {self.workspace}" if self.workspace else ""
        return f"/hooks/{self.name} ({self.kind}, {self.signature}){where}"


_HINT = "change `event` of the hook (docs/events.md)"


class MissingField(BadInput):
    """The alert lacks a field that the mapping reads."""


def _event_id(fields: Mapping[str, Any]) -> str:
    """Readable where that is short enough."""
    parts = [str(fields.get(name) or "") for name in ("fingerprint", "status", "began")]
    text = "/".join(part for part in parts if part)
    return text if len(text) <= ID_CHARS_MAX else sha256("\x1f".join(parts).encode()).hexdigest()


# ---------------------------------------------------------------- the file


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    hook: tuple[Hook, ...]


def load(path: Path | None) -> Mapping[str, Hook]:
    """The hooks by name; none without a file.

    Raises:
        BadSettings: the file is unreadable or invalid; the message says where, and shows no secret.
    """
    if path is None:
        return {}
    try:
        hooks = _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).hook
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadSettings(f"{path}: {where} {problem_of(first)}", hint="see docs/events.md") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSettings(
            f"{path} cannot be read: {error}", hint="fix it, or unset ANCHORWATCH_HOOKS"
        ) from None
    names = [hook.name for hook in hooks]
    if len(set(names)) != len(names):
        raise BadSettings(f"{path}: two hooks have the same name", hint="give each its own name")
    return {hook.name: _resolved(hook, path) for hook in hooks}


def _resolved(hook: Hook, file: Path) -> Hook:
    """The hook with its secret read and checked, and its mapping tried."""
    if hook.secret_file is not None:
        try:
            secret = (file.parent / hook.secret_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadSettings(f"{file}: the secret of hook {hook.name} cannot be read: {error}") from None
        hook = hook.model_copy(update={"secret": SecretStr(secret)})
    if hook.secret is not None:
        logs.hide(hook.secret.get_secret_value())
        _check_secret(hook, hook.secret.get_secret_value(), file)
    _check_mapping(hook, file)
    return hook


def _check_secret(hook: Hook, secret: str, file: Path) -> None:
    if hook.signature == "standard-webhooks":
        try:
            Webhook(secret)
        except Exception:  # noqa: BLE001 - the library raises several, and none may show the secret
            raise BadSettings(
                f"{file}: the secret of hook {hook.name} is invalid", hint="write it as whsec_ and base64"
            ) from None
    elif len(secret) < SECRET_CHARS_MIN or not secret.isascii():
        raise BadSettings(
            f"{file}: the secret of hook {hook.name} is too short, or is not ASCII",
            hint=f"use at least {SECRET_CHARS_MIN} random characters",
        )


_ALERT: Final[Mapping[str, Any]] = {
    "status": "firing",
    "labels": {"alertname": "Sample"},
    "annotations": {},
    "startsAt": "2026-03-17T18:56:43Z",
    "endsAt": "0001-01-01T00:00:00Z",
    "generatorURL": "",
    "fingerprint": "0123456789abcdef",
}


def _check_mapping(hook: Hook, file: Path) -> None:
    """Try the mapping on a sample, which finds a misspelt variable or function; a sample lacks labels of a real alert."""
    alert: dict[str, Any] = {}
    if hook.kind in ("alertmanager", "grafana"):
        alert = {**_ALERT, **({"values": {}} if hook.kind == "grafana" else {})}
    headers = {
        "x-github-event": "push",
        "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        "webhook-id": "msg_1",
    }
    body = {"status": "firing", "commonLabels": {}, "groupLabels": {}, "receiver": ""}
    try:
        with contextlib.suppress(MissingField):
            hook.event_of(alert, body, headers)
    except BadInput as error:
        raise BadSettings(f"{file}: {error.message}", hint=error.hint) from None
