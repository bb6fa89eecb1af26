"""Verbs about models."""

from __future__ import annotations

import typer

from anchorwatch.cli.options import (
    DataDirOption,
    JsonOption,
    TokenOption,
    UrlOption,
    refuse_before,
)

MODELS = typer.Typer(
    invoke_without_command=True, rich_markup_mode=None, help="List the models that agents ask."
)


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    app.add_typer(MODELS, name="models")


@MODELS.callback()
def models(
    context: typer.Context,
    as_json: JsonOption = False,  # noqa: FBT002 - a flag of the command line
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """List the models that agents ask: by what count, on what terms, and how each has answered lately."""
    if context.invoked_subcommand is None:
        list_models(as_json, data_dir, url, token)
    else:
        refuse_before(context.invoked_subcommand, as_json, data_dir, url, token)


@MODELS.command("list")
def list_models(
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """List the models."""
    from anchorwatch.cli import views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        found = api.get("/api/models")["data"]
    views.show(found, views.MODELS, as_json=as_json, empty="no agent asks a model: there are no agents")
