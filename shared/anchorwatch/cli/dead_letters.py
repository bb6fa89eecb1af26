"""Verbs on dead letters: messages whose handler keeps failing."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from anchorwatch.cli.render import Column
from anchorwatch.cli.verb import APP, Cli, Key, Limit, Note, OfSession, noun, verb

PATH = "/api/dead-letters"
COLUMNS = (
    Column("id"),
    Column("state"),
    Column("tries"),
    Column("session"),
    Column("last", "last_at"),
    Column("message", lambda row: f"{row['message']['stream']} {row['message']['sequence']}"),
    Column("error", lambda row: f"{row['error']['code']}: {row['error']['text']}"),
)
Ident = Annotated[str, typer.Argument(metavar="ID", help="Id of the dead letter.")]

LETTERS = noun(APP, "dead-letters", "List, show, retry or drop messages that could not be handled.")


@verb(LETTERS, "list")
def list_letters(
    cli: Cli,
    *,
    state: Annotated[
        str | None,
        typer.Option(
            "--state", metavar="STATE", help="Only this state: failing, open, retried, done, dropped."
        ),
    ] = None,
    service: Annotated[
        str | None, typer.Option("--service", metavar="SERVICE", help="Only this service.")
    ] = None,
    session: OfSession = None,
    limit: Limit = 100,
) -> None:
    """List the dead letters, last changed last."""
    found = cli.api.pages(PATH, limit, newest=True, state=state, service=service, session=session)
    cli.rows(found, COLUMNS, "no dead letters")


@verb(LETTERS)
def show(cli: Cli, letter: Ident) -> None:
    """Show a dead letter with the content of its message."""
    cli.fields(cli.api.get(_path(letter)))


@verb(LETTERS)
def retry(cli: Cli, letter: Ident, *, key: Key = None) -> None:
    """Handle the message once more."""
    done = cli.api.post(f"{_path(letter)}/retry", None, key=key)
    cli.say(done, f"{done['id']} is {done['state']}")


@verb(LETTERS)
def drop(cli: Cli, letter: Ident, *, note: Note = "", key: Key = None) -> None:
    """Give up on the message."""
    done = cli.api.post(f"{_path(letter)}/drop", {"note": note}, key=key)
    cli.say(done, f"{done['id']} is {done['state']}")


def _path(letter: str) -> str:
    return f"{PATH}/{quote(letter, safe='')}"
