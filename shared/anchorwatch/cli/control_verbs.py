"""Verbs that order a session: pause, resume, cancel, steer, objectives, constraints, delete."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from anchorwatch.cli.asking import ask
from anchorwatch.cli.options import DataDirOption, JsonOption, SessionArgument, TokenOption, UrlOption
from anchorwatch.core.errors import BadInput, NotFound

KeyOption = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Idempotency key: the same is done once.")
]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it stands in the journal.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
TurnArgument = Annotated[
    str, typer.Argument(metavar="TURN", help="The running turn: its id or run number.", show_default=False)
]
TextArgument = Annotated[str, typer.Argument(metavar="TEXT", help="Word for word; - reads standard input.")]
OBJECTIVE = typer.Typer(rich_markup_mode=None, help="Set, add or remove objectives of a session.")
CONSTRAINT = typer.Typer(rich_markup_mode=None, help="Set, add or remove constraints of a session.")


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    for verb in (pause, resume, cancel, steer, delete):
        app.command()(verb)
    for group, which in ((OBJECTIVE, "objectives"), (CONSTRAINT, "constraints")):
        _directives(group, which)
    app.add_typer(OBJECTIVE, name="objective")
    app.add_typer(CONSTRAINT, name="constraint")


def pause(
    session: SessionArgument,
    reason: ReasonOption = "",
    key: KeyOption = None,
    as_json: JsonOption = False,  # noqa: FBT002 - a flag of the command line
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Let a session start no turn and no command until it is resumed; what it accepts waits."""
    _order(session, "pause", {"reason": reason}, key, as_json, (data_dir, url, token))


def resume(
    session: SessionArgument,
    reason: ReasonOption = "",
    key: KeyOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Let a paused session go on."""
    _order(session, "resume", {"reason": reason}, key, as_json, (data_dir, url, token))


def cancel(
    session: SessionArgument,
    turn: TurnArgument,
    reason: ReasonOption = "",
    key: KeyOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """End the running turn TURN; says which of its commands it came too late for."""
    _order(session, "cancel", {"turn": turn, "reason": reason}, key, as_json, (data_dir, url, token))


def steer(
    session: SessionArgument,
    turn: TurnArgument,
    text: TextArgument,
    key: KeyOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Say something to the running turn TURN; its model is shown it at the next step."""
    _order(session, "steer", {"turn": turn, "text": _read(text)}, key, as_json, (data_dir, url, token))


def delete(
    session: SessionArgument,
    reason: ReasonOption = "",
    yes: YesOption = False,  # noqa: FBT002
    key: KeyOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Delete a session for good: its turn is cancelled, and its name is not used again."""
    if not yes and not _is_deleted(session, (data_dir, url, token)):
        ask(f"delete session {session}? its name is not used again")
    _order(session, "delete", {"reason": reason}, key, as_json, (data_dir, url, token))


def _directives(group: typer.Typer, which: str) -> None:
    """The verbs ``set``, ``add`` and ``remove`` of objectives, or of constraints."""

    @group.command("set", help=f"Replace all {which}; without a TEXT there are none.")
    def replace(
        session: SessionArgument,
        texts: Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...")] = None,
        key: KeyOption = None,
        as_json: JsonOption = False,  # noqa: FBT002
        data_dir: DataDirOption = None,
        url: UrlOption = None,
        token: TokenOption = None,
    ) -> None:
        body = {"change": "set", "items": texts or []}
        _order(session, which, body, key, as_json, (data_dir, url, token))

    @group.command("add", help=f"Add one to the {which}.")
    def add(
        session: SessionArgument,
        text: TextArgument,
        key: KeyOption = None,
        as_json: JsonOption = False,  # noqa: FBT002
        data_dir: DataDirOption = None,
        url: UrlOption = None,
        token: TokenOption = None,
    ) -> None:
        body = {"change": "add", "items": [_read(text)]}
        _order(session, which, body, key, as_json, (data_dir, url, token))

    @group.command("remove", help=f"Remove one of the {which}: word for word, or its number, from 1.")
    def remove(
        session: SessionArgument,
        text: TextArgument,
        key: KeyOption = None,
        as_json: JsonOption = False,  # noqa: FBT002
        data_dir: DataDirOption = None,
        url: UrlOption = None,
        token: TokenOption = None,
    ) -> None:
        where = (data_dir, url, token)
        item = _numbered(session, which, int(text), where) if text.isdecimal() else _read(text)
        _order(session, which, {"change": "remove", "items": [item]}, key, as_json, where)


def _numbered(session: str, which: str, number: int, where: tuple[Any, Any, Any]) -> str:
    """The objective or constraint of that number: it is removed by its words, so that another one is never hit.

    Raises:
        NotFound: there are not so many.
    """
    from anchorwatch.cli import looking
    from anchorwatch.cli.target import open_api

    with open_api(*where) as api:
        items: list[str] = api.get(f"/api/sessions/{looking.name(session)}/anchor")[which]
    if not 1 <= number <= len(items):
        raise NotFound(f"session {session} has {len(items)} {which}", hint=f"`anchorwatch anchor {session}`")
    return items[number - 1]


def _read(text: str) -> str:
    given = typer.get_text_stream("stdin").read() if text == "-" else text
    if not given.strip():
        raise BadInput("there is nothing in the text", hint="say something, or leave the order out")
    return given


def _is_deleted(session: str, where: tuple[Any, Any, Any]) -> bool:
    """Whether there is nothing left to ask about."""
    from anchorwatch.cli import looking
    from anchorwatch.cli.target import open_api

    with open_api(*where) as api:
        return bool(api.get(f"/api/sessions/{looking.name(session)}/anchor")["status"] == "deleted")


def _order(
    session: str,
    verb: str,
    body: dict[str, Any],
    key: str | None,
    as_json: bool,  # noqa: FBT001 - a flag of the command line
    where: tuple[Any, Any, Any],
) -> None:
    from anchorwatch.cli import looking, views
    from anchorwatch.cli.target import open_api

    with open_api(*where) as api:
        told = api.post(f"/api/sessions/{looking.name(session)}/{verb}", body, key=key)
    views.control(told, as_json=as_json)
