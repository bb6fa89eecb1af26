"""Asking the person who looks on, before something is done that cannot be undone."""

from __future__ import annotations

import typer

from anchorwatch.core.errors import Refused


def ask(question: str) -> None:
    """Go on only with a yes.

    Raises:
        Refused: the answer was no, or there was none, since nobody is there.
    """
    try:
        said = typer.confirm(question, err=True)
    except typer.Abort as end:
        if isinstance(end.__context__, KeyboardInterrupt):
            raise
        raise Refused("nothing was done: nobody answered", hint="--yes does it without asking") from None
    if not said:
        raise Refused("nothing was done")
