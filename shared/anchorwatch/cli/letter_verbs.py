"""Verbs about dead letters: messages that no service could handle."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from anchorwatch.cli.options import (
    DataDirOption,
    JsonOption,
    LimitOption,
    TokenOption,
    UrlOption,
    refuse_before,
)

LETTERS = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode=None,
    help="List, show, retry or drop messages that no service could handle.",
)
PATH = "/api/dead-letters"
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The letter, as the list has it.")]
KeyOption = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", help="Idempotency key: the same again is the same order."),
]


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    app.add_typer(LETTERS, name="dead-letters")


@LETTERS.callback()
def letters(
    context: typer.Context,
    as_json: JsonOption = False,  # noqa: FBT002 - a flag of the command line
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """List the letters, or ``show``, ``retry`` or ``drop`` one."""
    if context.invoked_subcommand is None:
        list_letters(None, None, None, 100, as_json, data_dir, url, token)
    else:
        refuse_before(context.invoked_subcommand, as_json, data_dir, url, token)


@LETTERS.command("list")
def list_letters(
    state: Annotated[
        str | None,
        typer.Option(
            "--state", metavar="STATE", help="In this state only: failing, open, retried, done, dropped."
        ),
    ] = None,
    service: Annotated[
        str | None, typer.Option("--service", metavar="SERVICE", help="Of this service only.")
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="SESSION", help="Of this session only.")
    ] = None,
    limit: LimitOption = 100,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """List the letters, the last changed last."""
    from anchorwatch.cli import columns, views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        found = api.pages(PATH, limit, newest=True, state=state, service=service, session=session)
    views.show(found, columns.DEAD_LETTERS, as_json=as_json, empty="there are no dead letters")


@LETTERS.command("show")
def show_letter(
    letter: IdArgument,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Show a letter, with what its message says."""
    from anchorwatch.cli import views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        found = api.get(_path(letter))
    views.tell(found, as_json=as_json)


@LETTERS.command("retry")
def retry(
    letter: IdArgument,
    key: KeyOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Have a letter's message handled once more."""
    from anchorwatch.cli import views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        told = api.post(f"{_path(letter)}/retry", None, key=key)
    views.say(told, f"{told['id']} is {told['state']}", as_json=as_json)


@LETTERS.command("drop")
def drop(
    letter: IdArgument,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Why.")] = "",
    key: KeyOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Give a letter's message up."""
    from anchorwatch.cli import views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        told = api.post(f"{_path(letter)}/drop", {"note": note}, key=key)
    views.say(told, f"{told['id']} is {told['state']}", as_json=as_json)


def _path(letter: str) -> str:
    return f"{PATH}/{quote(letter, safe='')}"
