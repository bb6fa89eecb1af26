"""Verbs that show what a model would see, and what it saw."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from anchorwatch.cli.options import (
    DataDirOption,
    JsonOption,
    LimitOption,
    SessionArgument,
    TokenOption,
    UrlOption,
)

TEXT_CHARS_MAX = 72
DIFFERENT = 1


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    for verb in (context, replay, costs):
        app.command()(verb)


def context(
    session: SessionArgument,
    full: Annotated[bool, typer.Option("--full", help="Print every block whole.")] = False,  # noqa: FBT002 - a flag
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Show what the next request to the model would hold, block by block. Nothing is sent."""
    from anchorwatch.cli import columns, looking, views
    from anchorwatch.cli.target import open_api

    with open_api(data_dir, url, token) as api:
        shown = api.get(f"/api/sessions/{looking.name(session)}/context")
    if as_json:
        views.json_out(shown)
        return
    print(
        f"run {shown['run_id']} of {shown['session']}: {shown['tokens']} of {shown['budget']} tokens for "
        f"{shown['model']} (prompt {shown['template']}, {shown['rung'].replace('_', ' ')})"
    )
    if shown["first"]:
        print(f"first: {shown['first']}")
    views.show(shown["blocks"], columns.BLOCKS, as_json=False, empty="")
    if full:
        for block in shown["blocks"]:
            print(f"\n--- {block['name']} ({block['tokens']} tokens)\n{block['text']}")


def costs(
    session: SessionArgument,
    limit: LimitOption = 10,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Show what a session's model calls used: in all, by day, and in its last turns. Costs are in the unit of the prices."""
    from anchorwatch.cli import columns, looking, views
    from anchorwatch.cli.target import open_api

    path = f"/api/sessions/{looking.name(session)}"
    with open_api(data_dir, url, token) as api:
        used = api.get(path)["usage"]
        turns = api.pages(f"{path}/turns", limit, newest=True)
    if as_json:
        of_turns = [{"run_id": turn["run_id"], "usage": turn["usage"]} for turn in turns]
        views.json_out({**used, "turns": of_turns})
        return
    rows: list[dict[str, Any]] = [
        {
            "what": f"run {turn['run_id']}",
            "outcome": turn["outcome"],
            # A step that rules decided asked no model.
            "calls": turn["steps_count"] if turn["usage"].get("prompt") is not None else None,
            **turn["usage"],
        }
        for turn in turns
    ]
    rows += [{"what": each["day"], **each} for each in reversed(used["days"])]
    views.show([*rows, {"what": "in all", **used["ever"]}], columns.SPENDING, as_json=False, empty="")


def replay(
    session: SessionArgument,
    turn: Annotated[str, typer.Option("--turn", metavar="T", help="The turn: its id or run number.")],
    model: Annotated[
        str | None, typer.Option("--model", metavar="M", help="Ask this model too; `rules` asks the pack.")
    ] = None,
    as_json: JsonOption = False,  # noqa: FBT002
    data_dir: DataDirOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Make the requests of a past turn again, and compare them with what was recorded. No call is run.

    Exits 1 when a request is not, byte for byte, what it was.
    """
    from anchorwatch.cli import looking, views
    from anchorwatch.cli.target import open_api

    body = {"turn": turn, **({"model": model} if model else {})}
    with open_api(data_dir, url, token) as api:
        made = api.post(f"/api/sessions/{looking.name(session)}/replay", body, timeout_s=REPLAY_TIMEOUT_S)
    if as_json:
        views.json_out(made)
    else:
        for step in made["steps"]:
            _tell(step)
    if not made["same"]:
        raise typer.Exit(DIFFERENT)


REPLAY_TIMEOUT_S = 600.0
"""The other model answers each step in its own time."""


def _tell(step: dict[str, Any]) -> None:
    verdict = {True: "the same request, byte for byte", False: "another request", None: "no request"}[
        step["same"]
    ]
    print(
        f"step {step['step']} ({step['model']}): {verdict}"
        + (f" - {step['why_not']}" if step["why_not"] else "")
    )
    print(f"  recorded: {_decision(step['decided'])}")
    other = step.get("other")
    if other is not None:
        said = (
            f"{other['error']['code']}: {other['error']['message']}" if "error" in other else _decision(other)
        )
        print(f"  {other['model']}: {said}")


def _decision(decided: dict[str, Any]) -> str:
    from anchorwatch.cli.show import one_line

    calls = ", ".join(f"{call['tool']}({_arguments(call['arguments'])})" for call in decided["calls"])
    return one_line("; ".join(part for part in (calls, decided["text"]) if part) or "nothing")


def _arguments(given: Any) -> str:  # noqa: ANN401 - JSON
    if not isinstance(given, dict):
        return str(given)
    return ", ".join(f"{name}={value!r}" for name, value in given.items())
