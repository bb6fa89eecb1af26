"""Verbs on a mesh on this machine: start, stop, status, scale, logs; and on one service, or the credentials."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from anchorwatch.cli.verb import APP, HOST, NOTHING, Cli, verb


@verb(APP, uses=HOST, json=False)
def up(
    cli: Cli,
    *,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", help="Port of the gateway; 0: any free one.", min=0, max=65535, show_default="8420"
        ),
    ] = None,
    nats_port: Annotated[
        int | None,
        typer.Option(
            "--nats-port",
            help="Port of the NATS server; 0: any free one.",
            min=0,
            max=65535,
            show_default="4222",
        ),
    ] = None,
    scale: Annotated[
        list[str] | None, typer.Option("--scale", metavar="NAME=N", help="Run N processes of a service.")
    ] = None,
    bare: Annotated[
        bool, typer.Option("--bare", help="Start no processes and create no agents of packs.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Return when the mesh is ready.")] = False,
    new_settings: Annotated[
        bool, typer.Option("--new-settings", help="Drop the settings of the last start.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Run only this service.", hidden=True)
    ] = None,
) -> int:
    """Start the mesh and the first agents of packs. Ctrl-C stops it."""
    from anchorwatch.cli import up as start

    wish = start.Wish(
        port=port,
        nats_port=nats_port,
        scale=tuple(scale or ()),
        bare=bare,
        detach=detach,
        only=tuple(only or ()),
        new_settings=new_settings,
    )
    return start.run(wish, cli.data_dir)


@verb(APP, uses=HOST)
def down(cli: Cli) -> None:
    """Stop the mesh."""
    from anchorwatch.cli import running

    pid = running.stop(cli.data)
    done = (
        f"no mesh is running on {cli.data.root}: nothing to stop" if pid is None else f"stopped (pid {pid})"
    )
    cli.say({"pid": pid}, done)


@verb(APP, uses=HOST)
def status(cli: Cli) -> None:
    """Show the processes of the mesh, and what needs attention."""
    from anchorwatch.cli import running

    state = running.status(cli.data)
    state |= running.attention(cli.data, state)
    if cli.as_json:
        cli.json(state)
    else:
        print(running.status_text(state))


@verb(APP, uses=HOST, negative=True)
def scale(
    cli: Cli,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A service, such as executor.")],
    count: Annotated[int, typer.Argument(metavar="N", help="Number of processes.")],
) -> None:
    """Run N processes of a service, now and after a restart."""
    from anchorwatch.mesh import control
    from anchorwatch.mesh.roster import check_count

    check_count(name, count)
    answer = control.ask(cli.data, {"verb": "scale", "service": name, "count": count})
    cli.say(answer, f"{answer['service']}: {answer['count']}")


@verb(APP, uses=HOST)
def logs(
    cli: Cli,
    service: Annotated[
        str, typer.Argument(metavar="[SERVICE]", help="Only this service or process, such as planner-1.")
    ] = "",
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="Only the last N lines.", min=0)
    ] = None,
) -> None:
    """Print the logs of the mesh, merged by time."""
    from anchorwatch.cli import log_files

    with contextlib.suppress(KeyboardInterrupt):
        log_files.show(cli, cli.data.logs, service, limit=limit, follow=follow)


@verb(APP, uses=NOTHING, json=False)
def serve(
    _cli: Cli,
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="Name of the service, such as planner.")],
) -> int:
    """Run one service, connected to ANCHORWATCH_NATS_URL."""
    from anchorwatch.service import runner

    return runner.main(service)


@verb(APP, uses=HOST, json=False)
def init(
    cli: Cli,
    *,
    nats_host: Annotated[
        str, typer.Option("--nats-host", metavar="HOST", help="Host of the NATS server, for the services.")
    ] = "nats",
) -> None:
    """Create credentials and a NATS configuration, for containers."""
    from anchorwatch.cli import provision

    print(provision.init(cli.data, nats_host))


@verb(APP, uses=HOST)
def credentials(
    cli: Cli,
    user: Annotated[
        str, typer.Argument(metavar="USER", help="publisher, cli, a service, or api.")
    ] = "publisher",
) -> None:
    """Print the credentials of a NATS user, or the token of the API (api)."""
    from anchorwatch.cli import provision

    found = provision.credentials(cli.data, user)
    cli.say(found, *(f"{key}: {value}" for key, value in found.items()))
