"""The public module for verbs of packs: a function of the entry-point group `anchorwatch.verbs` gets the `typer` app.

    def add_to(app: typer.Typer) -> None:
        rooms = noun(app, "rooms", "List or lock rooms.")
        verb(rooms, "list", BUS)(list_rooms)

A verb's first parameter is a `Cli`: the client of the API, ``with_bus`` to connect to NATS, and the output.
"""

from anchorwatch.cli.render import Column
from anchorwatch.cli.verb import API, BUS, NOTHING, Cli, noun, verb

__all__ = ["API", "BUS", "NOTHING", "Cli", "Column", "noun", "verb"]
