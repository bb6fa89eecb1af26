"""Verbs about effects: what was done in the world, and settling by hand what nobody can tell."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from anchorwatch.cli.options import (
    DataDirOption,
    JsonOption,
    LimitOption,
    SessionOption,
    StateOption,
    TokenOption,
    UrlOption,
    refuse_before,
)
from anchorwatch.core.names import parse_call

SHOW = "show"


class CallOrVerb(TyperGroup):
    """A group in which a word that is none of its verbs is a call to show."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer's own types
        words = args if args[0] in self.commands else [SHOW, *args]
        return super().resolve_command(ctx, words)


EFFECTS = typer.Typer(
    cls=CallOrVerb,
    invoke_without_command=True,
    rich_markup_mode=None,
    help="Show what was done in the world, or settle what is unknown.",
    subcommand_metavar="[CALL | COMMAND [ARGS]...]",
)
CallArgument = Annotated[str, typer.Argument(metavar="CALL", help="SESSION/RUN.STEP.N.", show_default=False)]


class Verdict(StrEnum):
    """What a person found out."""

    DONE = "done"
    NOT_DONE = "not-done"


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    app.add_typer(EFFECTS, name="effects")


@EFFECTS.callback()
def effects(
    context: typer.Context,
    session: SessionOption = None,
    state: StateOption = None,
    limit: LimitOption = 100,
    as_json: JsonOption = False,  # noqa: FBT002 - a flag of the command line
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Show what was done in the world, the newest last; one CALL; or ``resolve`` what is unknown."""
    if context.invoked_subcommand is not None:
        refuse_before(context.invoked_subcommand, session, state, as_json, data_dir, url, token)
        return
    from anchorwatch.cli import columns, views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        found = api.pages("/api/effects", limit, newest=True, session=session, state=state)
    of, how = f" of {session}" if session else "", f" is {state}" if state else " is known"
    empty = f"no effect{of}{how}" if session or state else "nothing was done yet"
    views.show(found, columns.EFFECTS, as_json=as_json, empty=empty)


@EFFECTS.command(SHOW)
def show(
    call: CallArgument,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Show one call and what came of it."""
    from anchorwatch.cli import looking, views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        views.tell(looking.call(api, call), as_json=as_json)


@EFFECTS.command()
def resolve(
    call: CallArgument,
    verdict: Annotated[
        Verdict, typer.Argument(metavar="done|not-done", help="Whether it was done.", show_default=False)
    ],
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="How that is known.")] = "",
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Idempotency key: sent again, it is the same.")
    ] = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Settle an effect that is unknown, once; its resource is free again."""
    from anchorwatch.cli import views
    from anchorwatch.cli.target import open_api

    parse_call(call)
    body = {"call": call, "verdict": verdict.value, "note": note}
    with open_api(data_dir, url, token) as api:
        settled = api.post("/api/effects/resolve", body, key=key)
    again = "; it had been settled so before" if settled.get("replayed") else ""
    text = f"{call} is settled as {verdict.value} by {settled['by']} (journal sequence {settled['sequence']}){again}"
    views.say(settled, text, as_json=as_json)
