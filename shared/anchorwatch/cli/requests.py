"""Verbs on requests to models: what the next one holds, what past ones held, and what they cost."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from anchorwatch.cli.render import Column, Row
from anchorwatch.cli.verb import APP, Cli, Limit, Session, session_path, verb

REPLAY_TIMEOUT_S = 600.0
"""Another model answers each step in its own time."""
DIFFERENT = 1
BLOCK_COLUMNS = (
    Column("block", "name"),
    Column("tokens"),
    Column("left out", "left_out"),
    Column("begins", lambda row: row["text"][:60]),
)
SPENDING_COLUMNS = (
    Column("what"),
    Column("outcome"),
    Column("calls"),
    Column("prompt tokens", "prompt"),
    Column("completion tokens", "completion"),
    Column("estimated"),
    Column("cost"),
)
_VERDICTS = {True: "the same request, byte for byte", False: "another request", None: "no request"}


@verb(APP)
def context(
    cli: Cli,
    session: Session,
    *,
    full: Annotated[bool, typer.Option("--full", help="Print the whole text of every block.")] = False,
) -> None:
    """Show the blocks of the next request to the model, without sending it."""
    shown = cli.api.get(session_path(session, "context"))
    if cli.as_json:
        cli.json(shown)
        return
    cli.lines(
        f"run {shown['run_id']} of {shown['session']}: {shown['tokens']} of {shown['budget']} tokens for "
        f"{shown['model']} (prompt {shown['template']}, {shown['rung'].replace('_', ' ')})"
    )
    if shown["first"]:
        cli.lines(f"first: {shown['first']}")
    cli.rows(shown["blocks"], BLOCK_COLUMNS, "no blocks")
    for block in shown["blocks"] if full else ():
        cli.lines("", f"--- {block['name']} ({block['tokens']} tokens)")
        print(block["text"])


@verb(APP)
def costs(cli: Cli, session: Session, *, limit: Limit = 10) -> None:
    """Show tokens and costs of a session: in total, by day, by recent turn."""
    used = cli.api.get(session_path(session))["usage"]
    turns = cli.api.pages(session_path(session, "turns"), limit, newest=True)
    if cli.as_json:
        cli.json({**used, "turns": [{"run_id": turn["run_id"], "usage": turn["usage"]} for turn in turns]})
        return
    rows: list[Row] = [
        {
            "what": f"run {turn['run_id']}",
            "outcome": turn["outcome"],
            **turn["usage"],
        }
        for turn in turns
    ]
    rows += [{"what": each["day"], **each} for each in reversed(used["days"])]
    cli.rows([*rows, {"what": "total", **used["ever"]}], SPENDING_COLUMNS, "")


@verb(APP)
def replay(
    cli: Cli,
    session: Session,
    *,
    turn: Annotated[str, typer.Option("--turn", metavar="TURN", help="The turn: its id or run number.")],
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="Ask this model too; rules: the pack.")
    ] = None,
) -> None:
    """Rebuild the requests of a past turn and compare; exit 1 if one differs."""
    body = {"turn": turn, **({"model": model} if model else {})}
    done = cli.api.post(session_path(session, "replay"), body, timeout_s=REPLAY_TIMEOUT_S)
    cli.say(done, *(line for step in done["steps"] for line in _compared(step)))
    if not done["same"]:
        raise typer.Exit(DIFFERENT)


def _compared(step: Row) -> list[str]:
    why = f" - {step['why_not']}" if step["why_not"] else ""
    lines = [
        f"step {step['step']} ({step['model']}): {_VERDICTS[step['same']]}{why}",
        f"  recorded: {_decision(step['decided'])}",
    ]
    if (other := step.get("other")) is not None:
        error = other.get("error")
        answer = f"{error['code']}: {error['message']}" if error else _decision(other)
        lines.append(f"  {other['model']}: {answer}")
    return lines


def _decision(decided: Row) -> str:
    calls = ", ".join(f"{call['tool']}({_arguments(call['arguments'])})" for call in decided["calls"])
    return "; ".join(part for part in (calls, decided["text"]) if part) or "nothing"


def _arguments(given: Any) -> str:  # noqa: ANN401 - JSON
    if not isinstance(given, dict):
        return str(given)
    return ", ".join(f"{name}={value!r}" for name, value in given.items())
