"""Verbs about a mesh on this machine: start, stop, look, scale; and about one service, or its credentials."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from anchorwatch.cli.options import DataDirOption, JsonOption

PortOption = Annotated[
    int | None,
    typer.Option(
        "--port", help="The gateway's port; 0: any free one.", min=0, max=65535, show_default="8420"
    ),
]
NatsPortOption = Annotated[
    int | None,
    typer.Option(
        "--nats-port", help="The NATS server's port; 0: any free one.", min=0, max=65535, show_default="4222"
    ),
]
ScaleOption = Annotated[
    list[str] | None, typer.Option("--scale", metavar="NAME=N", help="Run N of a service.")
]
BareOption = Annotated[bool, typer.Option("--bare", help="Start no processes and create no agents of packs.")]
DetachOption = Annotated[bool, typer.Option("--detach", help="Return when it is ready; it runs on.")]
OnlyOption = Annotated[
    list[str] | None, typer.Option("--only", metavar="NAME", help="These services alone.", hidden=True)
]


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    for verb in (up, down, status, scale, serve, init, credentials, version):
        app.command()(verb)


def up(
    port: PortOption = None,
    nats_port: NatsPortOption = None,
    scale: ScaleOption = None,
    bare: BareOption = False,  # noqa: FBT002 - a flag of the command line
    detach: DetachOption = False,  # noqa: FBT002
    only: OnlyOption = None,
    data_dir: DataDirOption = None,
) -> int:
    """Start the mesh and the agents that packs start with. Ctrl-C stops it."""
    from anchorwatch.cli import up as verb

    wish = verb.Wish(
        port=port,
        nats_port=nats_port,
        scale=tuple(scale or ()),
        bare=bare,
        detach=detach,
        only=tuple(only or ()),
    )
    return verb.run(wish, data_dir)


def down(data_dir: DataDirOption = None) -> None:
    """Stop the mesh."""
    from anchorwatch.cli import running

    data = running.data_directory(data_dir)
    pid = running.stop(data)
    typer.echo(f"stopped (pid {pid})")


def status(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:  # noqa: FBT002
    """Show what runs, since when, and where its logs are."""
    from anchorwatch.cli import running

    data = running.data_directory(data_dir)
    state = running.status(data)
    state |= running.attention(data, state)
    typer.echo(json.dumps(state, indent=2) if as_json else running.status_text(state))


def scale(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A service, such as executor.")],
    count: Annotated[int, typer.Argument(metavar="N", help="How many of it.", min=0)],
    data_dir: DataDirOption = None,
) -> None:
    """Run N processes of a service, now and after a restart."""
    from anchorwatch.cli import running
    from anchorwatch.mesh import control

    answer = control.ask(running.data_directory(data_dir), {"verb": "scale", "service": name, "count": count})
    typer.echo(f"{answer['service']}: {answer['count']}")


def serve(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="Its name, such as planner.")],
) -> int:
    """Run one service, against ANCHORWATCH_NATS_URL."""
    from anchorwatch.service import runner

    return runner.main(service)


def init(
    data_dir: DataDirOption = None,
    nats_host: Annotated[str, typer.Option("--nats-host", help="Where services will find NATS.")] = "nats",
) -> None:
    """Make credentials and a NATS configuration, for containers."""
    from anchorwatch.cli import provision, running

    typer.echo(provision.init(running.data_directory(data_dir), nats_host))


def credentials(
    user: Annotated[
        str, typer.Argument(metavar="USER", help="publisher, cli, a service, or api.")
    ] = "publisher",
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
) -> None:
    """Print the credentials of a NATS user, or the token of the API (api)."""
    from anchorwatch.cli import provision, running

    found = provision.credentials(running.data_directory(data_dir), user)
    typer.echo(
        json.dumps(found, indent=2)
        if as_json
        else "\n".join(f"{key}: {value}" for key, value in found.items())
    )


def version(as_json: JsonOption = False) -> None:  # noqa: FBT002
    """Print the version."""
    from importlib.metadata import version as installed

    number = installed("anchorwatch")
    typer.echo(json.dumps({"version": number}) if as_json else f"anchorwatch {number}")
