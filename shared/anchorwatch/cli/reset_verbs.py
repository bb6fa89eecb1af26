"""Verbs about starting a conversation anew: reset and undo-reset."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from anchorwatch.cli import holding
from anchorwatch.cli.control_verbs import KeyOption, ReasonOption, YesOption
from anchorwatch.cli.options import DataDirOption, JsonOption, SessionArgument, TokenOption, UrlOption
from anchorwatch.core.errors import BadInput

CANARY_S = 60.0
PAUSE_S = 0.3


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command()(reset)
    app.command("undo-reset")(undo_reset)


def reset(  # noqa: PLR0913, PLR0917 - options of the command line
    session: SessionArgument,
    dry_run: Annotated[  # noqa: FBT002 - a flag of the command line
        bool, typer.Option("--dry-run", help="Show what it would do, and the confirmation that it needs.")
    ] = False,
    confirm: Annotated[
        str | None, typer.Option("--confirm", metavar="C", help="The confirmation of what was shown.")
    ] = None,
    yes: YesOption = False,  # noqa: FBT002
    wait_s: Annotated[
        float, typer.Option("--wait", metavar="S", help="Wait so long for the canary turn.", min=0)
    ] = CANARY_S,
    reason: ReasonOption = "",
    key: KeyOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Archive the conversation of a session, keep its anchor, and see a canary turn run."""
    from anchorwatch.cli import looking, views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        path = f"/api/sessions/{looking.name(session)}"
        if dry_run:
            views.reset_shown(api.get(f"{path}/reset"), as_json=as_json)
            return
        if confirm is None and not yes:
            raise BadInput(
                "a reset needs a confirmation of what was shown",
                hint=f"`anchorwatch reset {session} --dry-run` gives it for --confirm; --yes does both",
            )
        told = api.post(f"{path}/reset", {"confirmation": confirm, "reason": reason}, key=key)
        if not as_json:
            views.control(told, as_json=False)
        ran = _canary(api, path, told, wait_s)
    if as_json:
        views.json_out({**told, "canary_run": ran})
    elif waits := holding.until_what(told):
        typer.echo(f"the canary turn waits: {waits[0]}")
    elif ran is None:
        typer.echo(f"the canary turn has not ended within {wait_s:g} s: `anchorwatch wakes {session}`")
    else:
        typer.echo(f"the canary turn ran: turn {ran['run_id']} ended {ran['outcome']}")


def undo_reset(
    session: SessionArgument,
    reason: ReasonOption = "",
    key: KeyOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Bring back the conversation that the last reset archived."""
    from anchorwatch.cli import looking, views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        told = api.post(f"/api/sessions/{looking.name(session)}/undo-reset", {"reason": reason}, key=key)
    views.control(told, as_json=as_json)


def _canary(api: Any, path: str, told: dict[str, Any], wait_s: float) -> dict[str, Any] | None:  # noqa: ANN401 - the API
    """The turn that took the canary up, once it has ended; None where it has not in time."""
    if holding.until_what(told):
        return None
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        # The canary stands right behind the reset and its receipt.
        anchor = api.get(f"{path}/anchor")
        if anchor["status"] == "idle" and anchor["inputs_through"] >= told["sequence"] + 2:
            return {"run_id": anchor["last_run_id"], "outcome": anchor["last_run_outcome"]}
        time.sleep(PAUSE_S)
    return None
