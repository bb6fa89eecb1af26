"""Notification routes: the file that the setting ``notify`` names. Format: docs/notifications.md."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from anchorwatch.core.errors import BadSettings
from anchorwatch.core.names import NAME_PATTERN
from anchorwatch.service import logs
from anchorwatch.topology.subjects import MESH
from pydantic import (
    BaseModel,
    ConfigDict,
    SecretStr,
    StringConstraints,
    ValidationError,
    model_validator,
)
from standardwebhooks import Webhook

from anchorwatch_notifier.notices import CRITICAL, KINDS, Notice, NoticeKind

USUAL = tuple(kind for kind in KINDS if kind != "turn_ended")
"""The default notices of a channel: all but the end of a turn."""

Name = Annotated[str, StringConstraints(pattern=f"^{NAME_PATTERN}$")]


class Route(BaseModel):
    """One ``[[channel]]``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    kind: Literal["log", "file", "webhook"]
    on: tuple[NoticeKind, ...] = USUAL
    workspace: Name | None = None
    session: Name | None = None
    path: Path | None = None
    url: str | None = None
    secret: SecretStr | None = None
    secret_file: Path | None = None

    @model_validator(mode="after")
    def _complete(self) -> Route:
        if self.kind == "file" and self.path is None:
            raise ValueError("a channel of kind `file` needs a path")
        if self.kind == "webhook" and not (self.url or "").startswith(("https://", "http://")):
            raise ValueError("a channel of kind `webhook` needs a url that begins with https:// or http://")
        if self.kind == "webhook" and self.secret is None and self.secret_file is None:
            raise ValueError("a channel of kind `webhook` needs a secret or a secret_file, to sign with")
        return self

    @property
    def tells_all_critical(self) -> bool:
        """Whether every critical notice of the mesh reaches people by this channel. A log reaches no person by itself."""
        return (
            self.kind != "log"
            and self.workspace is None
            and self.session is None
            and set(self.on) >= CRITICAL
        )

    def wants(self, notice: Notice) -> bool:
        """Whether this channel gets the notice."""
        return (
            any(kind in self.on for kind in notice.kinds)
            # A notice for all workspaces goes to the channels of each.
            and (self.workspace in (None, notice.ref.workspace) or notice.ref.workspace == MESH)
            and self.session in (None, notice.ref.session)
        )


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    channel: tuple[Route, ...]


LOG_ALONE = (Route(name="log", kind="log"),)


def described(routes: Sequence[Route]) -> bytes:
    """The answer to the request ``channels``: no address and no secret."""
    rows = [
        {"name": route.name, "kind": route.kind, "critical": route.tells_all_critical} for route in routes
    ]
    return json.dumps({"result": rows}).encode()


def load(path: Path | None) -> Sequence[Route]:
    """The channels; the log only, without a file.

    Raises:
        BadSettings: the file is unreadable or invalid; the message says where.
    """
    if path is None:
        return LOG_ALONE
    try:
        routes = _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).channel
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadSettings(f"{path}: {where}: {first['msg']}", hint="see docs/notifications.md") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSettings(
            f"{path} cannot be read: {error}", hint="fix it, or unset ANCHORWATCH_NOTIFY"
        ) from None
    names = [route.name for route in routes]
    if len(set(names)) != len(names):
        raise BadSettings(f"{path}: two channels have the same name", hint="give each its own name")
    return [_resolved(route, path) for route in routes]


def _resolved(route: Route, file: Path) -> Route:
    """The route with its secret read and checked, and its path relative to the file."""
    changes: dict[str, object] = {}
    if route.path is not None:
        changes["path"] = file.parent / route.path
    if route.secret_file is not None:
        try:
            secret = (file.parent / route.secret_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadSettings(f"{file}: the secret of channel {route.name} cannot be read: {error}") from None
        changes["secret"] = SecretStr(secret)
    resolved = route.model_copy(update=changes)
    if resolved.secret is not None:
        logs.hide(resolved.secret.get_secret_value())
        _check_secret(resolved.name, resolved.secret.get_secret_value(), file)
    return resolved


def _check_secret(name: str, secret: str, file: Path) -> None:
    try:
        Webhook(secret)
    except Exception:  # noqa: BLE001 - the library raises several, and none may show the secret
        raise BadSettings(
            f"{file}: the secret of channel {name} is invalid", hint="write it as whsec_ and base64"
        ) from None
