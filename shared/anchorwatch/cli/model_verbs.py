"""Verbs about models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anchorwatch.cli.options import (
    DataDirOption,
    JsonOption,
    TokenOption,
    UrlOption,
    refuse_before,
)

MODELS = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode=None,
    help="List the models that agents ask, or probe an endpoint.",
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
    from anchorwatch.cli import columns, views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        found = api.all("/api/models")
    views.show(found, columns.MODELS, as_json=as_json, empty="no agent asks a model: there are no agents")


@MODELS.command("probe")
def probe(
    url: Annotated[str, typer.Argument(metavar="URL", help="The endpoint's base URL, most often with /v1.")],
    model: Annotated[
        str,
        typer.Option("--model", metavar="NAME", help="The model to ask; else the only one that is listed."),
    ] = "",
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="The endpoint's key.")] = None,
    key_file: Annotated[
        Path | None, typer.Option("--key-file", metavar="FILE", help="A file that holds the key.")
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="The longest wait for one answer.", min=0.1)
    ] = 60.0,
    overflow_tokens: Annotated[
        int | None,
        typer.Option(
            "--overflow-tokens",
            metavar="N",
            help="Size of the request that is to be too large; 0: none. Else a quarter more than the endpoint says it takes.",
            min=0,
            max=400_000,
        ),
    ] = None,
    as_json: JsonOption = False,  # noqa: FBT002
) -> int:
    """Ask an endpoint how it behaves, and print its profile as TOML; exit 1 if it can call no tools. Up to 20 short requests."""
    from anchorwatch.cli import model_probe

    wish = model_probe.Wish(url, model, key, key_file, timeout_s, overflow_tokens)
    return model_probe.run(wish, as_json=as_json)
