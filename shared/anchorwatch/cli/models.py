"""Verbs on models: list those that agents use, and probe an endpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anchorwatch.cli.render import Column, Row
from anchorwatch.cli.verb import APP, NOTHING, Cli, noun, verb


def _correction(row: Row) -> str | None:
    value = row.get("correction")
    return f"× {value['ratio']:.3g}, at least + {value['excess']}" if value and value["reports"] else None


def _report(row: Row) -> str | None:
    value = row.get("last_report")
    return f"{value['reported']} (counted {value['counted']})" if value else None


COLUMNS = (
    Column("name"),
    Column("model"),
    Column("endpoint"),
    Column("profile"),
    Column("counted by", "counter"),
    Column("corrected", _correction),
    Column("last report", _report),
    Column("failures"),
    Column("retry at", "asked_again_at"),
    Column("agents", lambda row: ", ".join(row["agents"])),
    Column(
        "problem", lambda row: row.get("problem") or (row["fault"]["why"] if row.get("failures") else None)
    ),
)

MODELS = noun(APP, "models", "List the models that agents use, or probe an endpoint.")


@verb(MODELS, "list")
def list_models(cli: Cli) -> None:
    """List the models that agents use, with their last results."""
    cli.rows(cli.api.all("/api/models"), COLUMNS, "no models in use: no agents")


# Its own URL is the endpoint's.
@verb(MODELS, uses=NOTHING)
def probe(
    cli: Cli,
    url: Annotated[str, typer.Argument(metavar="URL", help="Base URL of the endpoint, usually with /v1.")],
    *,
    model: Annotated[
        str,
        typer.Option("--model", metavar="NAME", help="Model to test.", show_default="the only one listed"),
    ] = "",
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="API key of the endpoint.")] = None,
    key_file: Annotated[
        Path | None, typer.Option("--key-file", metavar="FILE", help="File that holds the API key.")
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="Longest wait for one answer.", min=0.1)
    ] = 60.0,
    overflow_tokens: Annotated[
        int | None,
        typer.Option(
            "--overflow-tokens",
            metavar="N",
            help="Token size of the oversized test request. 0 skips the test.",
            show_default="5/4 of the endpoint's limit",
            min=0,
            max=400_000,
        ),
    ] = None,
) -> int:
    """Probe an endpoint, and print its profile; exit 1 if it calls no tools."""
    from anchorwatch.cli import model_probe

    wish = model_probe.Wish(url, model, key, key_file, timeout_s, overflow_tokens)
    return model_probe.run(wish, as_json=cli.as_json)
