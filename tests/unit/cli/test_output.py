"""The output of every verb: as in golden/ for people, whole as JSON, and never in control of the terminal."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.cli.main import build
from anchorwatch.cli.render import SafeStream, visible
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from tests.unit.cli.cases import ANCHOR, CASES, OTHERS, Case, page
from tests.unit.cli.conftest import Ran, Run
from tests.unit.cli.gateways import Gateway

GOLDEN = Path(__file__).with_name("golden")
WRITE = "ANCHORWATCH_TEST_GOLDEN" in os.environ
"""Set it to rewrite the expected files after an intended change of the output; then review the diff."""
HOSTILE = "\x1b]52;c;aGk=\x07\x9b2J\u202egnp.exe\x85forged\r\nforged \u2028forged"
LOGIC = frozenset({"status", "session_status", "state", "call", "next", "which", "scope", "kind", "at"})
"""Fields that a verb compares, so that a hostile value would take another way through it."""
DERIVED = frozenset({"critical", "costs", "repair", "reset", "objective", "constraint", "effects", "journal"})
"""Verbs whose JSON is not the first answer of the gateway as it came."""
AGENT_FILE = 'name = "keeper"\npack = "fleet"\n'


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def ran(run: Run, remote: Gateway, case: Case, *more: str, hostile: bool = False) -> Ran:
    Path("agent.toml").write_text(AGENT_FILE)
    for what, value in case.answers.items():
        remote.answer(what, (200, poisoned(value) if hostile else value))
    return run(*case.words.split(), *more)


def poisoned(value: Any, name: str = "") -> Any:
    """``value`` with every text in it hostile."""
    if isinstance(value, dict):
        more = {f"fact{HOSTILE}": HOSTILE} if name == "facts" else {}
        return {key: poisoned(each, key) for key, each in value.items()} | more
    if isinstance(value, list):
        return [poisoned(each, name) for each in value]
    return value + HOSTILE if isinstance(value, str) and name not in LOGIC else value


def is_safe(text: str) -> bool:
    return all(each.isprintable() or each == "\n" for each in text)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.words)
def test_output_is_as_in_the_golden_file(run: Run, remote: Gateway, case: Case) -> None:
    done = ran(run, remote, case)
    assert (done.code, done.err) == (case.code, "")
    file = GOLDEN / (re.sub(r"[^a-z0-9]+", "-", case.words) + ".txt")
    if WRITE:
        file.write_text(done.out)
    assert done.out == file.read_text()


def test_every_golden_file_is_used() -> None:
    names = {re.sub(r"[^a-z0-9]+", "-", case.words) + ".txt" for case in CASES}
    assert {file.name for file in GOLDEN.iterdir()} == names


def test_every_verb_has_a_case() -> None:
    verbs = set(leaves(get_command(build()), ""))
    with_case = {verb for verb in verbs if any(f"{case.words} ".startswith(f"{verb} ") for case in CASES)}
    assert verbs - with_case == set(OTHERS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.words)
def test_json_output_holds_every_value(run: Run, remote: Gateway, case: Case) -> None:
    done = ran(run, remote, case, "--json", hostile=True)
    assert is_safe(done.out)
    report = json.loads(done.out)
    first = poisoned(next(iter(case.answers.values())))
    if case.words.split()[0] not in DERIVED:
        said = report if isinstance(report, list) else [report]
        assert said == (
            first["data"][::-1] if "wakes list" in case.words or newest_last(case) else rows(first)
        )


def rows(answer: Any) -> list[Any]:
    return list(answer["data"]) if "data" in answer else [answer]


def newest_last(case: Case) -> bool:
    return case.words.startswith(("timeline", "conversation", "deliveries", "dead-letters list"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.words)
def test_hostile_values_stay_text_within_their_line(run: Run, remote: Gateway, case: Case) -> None:
    lines = ran(run, remote, case).out.count("\n")
    done = ran(run, remote, case, hostile=True)
    assert done.code == case.code
    assert is_safe(done.out)
    if case.words not in (
        "anchor fleet",
        "context fleet --full",
        "show fleet",
        "constraint list fleet",
        "conversation fleet",
    ):
        assert done.out.count("\n") == lines


def test_hostile_objective_is_shown_as_text(run: Run, remote: Gateway) -> None:
    remote.answer("GET /api/sessions/fleet", (200, {"anchor": {"objectives": ["\x1b]52;c;aGk=\x07"]}}))
    assert "- \\u001b]52;c;aGk=\\u0007\n" in run("show", "fleet").out
    remote.answer("GET /api/sessions/fleet/anchor", (200, {**ANCHOR, "objectives": ["\x9b2J\u202e"]}))
    out = run("anchor", "fleet").out
    assert "\\u009b2J\\u202e" in out
    assert json.loads(out)["objectives"] == ["\x9b2J\u202e"]


def test_hostile_error_is_shown_as_text(run: Run, remote: Gateway) -> None:
    remote.answer("GET /api/sessions", (409, {"code": "conflict", "message": HOSTILE, "hint": HOSTILE}))
    done = run("sessions")
    assert (done.code, done.err.count("\n"), is_safe(done.err)) == (5, 1, True)
    assert "\\u001b]52;c;aGk=\\u0007" in done.err


def test_hostile_setting_is_shown_as_text(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORWATCH_MODEL_NAME", "\x1b]52;c;aGk=\x07")
    assert is_safe(run("config").out)


@given(st.text())
def test_visible_text_has_the_same_json_value(text: str) -> None:
    shown = visible(json.dumps(text, ensure_ascii=False))
    assert is_safe(shown)
    assert json.loads(shown) == text


def test_safe_stream_writes_lines_and_flushes() -> None:
    under = io.StringIO()
    stream = SafeStream(under)
    print("a\x1b", "b", file=stream, flush=True)
    stream.writelines(["c\n", "\ud800\n"])
    assert under.getvalue() == "a\\u001b b\nc\n\\ud800\n"


# ------------------------------------------------------------ the common options


def test_common_options_may_come_before_the_verb(run: Run, remote: Gateway) -> None:
    remote.answer("GET /api/sessions", (200, page({"name": "a"})))
    before = run("--workspace", "night", "--json", "sessions", "list")
    assert before == run("sessions", "--workspace", "night", "--json")
    assert [asked.query["workspace"] for asked in remote.asked] == ["night", "night"]
    assert json.loads(before.out) == [{"name": "a"}]


def test_option_of_the_verb_wins(run: Run, remote: Gateway) -> None:
    remote.answer("GET /api/agents", (200, page()))
    assert run("--workspace", "night", "agents", "--workspace", "day").code == 0
    assert remote.asked[-1].query["workspace"] == "day"
    assert run("agents", "--workspace", "Not/A").code == 2


def test_kill_switch_has_both_workspace_options(run: Run, remote: Gateway) -> None:
    switch = {"scope": "workspace", "name": None, "on": True}
    remote.answer("POST /api/kill-switches", (200, switch))
    assert run("--workspace", "night", "kill-switch", "on", "--workspace").code == 0
    assert remote.asked[-1].query["workspace"] == "night"
    assert remote.asked[-1].body["scope"] == "workspace"


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("sessions", "sessions list"), ("agents", "agents list"), ("models", "models list"), ("effects", "effects list"),
        ("deliveries", "deliveries list"), ("kill-switch", "kill-switch list"), ("schedule", "schedule list"),
        ("dead-letters", "dead-letters list"), ("wakes fleet", "wakes list fleet"),
        ("objective fleet", "objective list fleet"), ("effects fleet/15.2.1", "effects show fleet/15.2.1"),
    ],
)  # fmt: skip
def test_list_has_a_short_form(run: Run, remote: Gateway, short: str, long: str) -> None:
    case = next(case for case in CASES if case.words == long)
    assert ran(run, remote, Case(short, case.answers)) == ran(run, remote, case)


def test_version_and_help_options(run: Run) -> None:
    assert run("--version").out == run("version").out
    assert run("sessions", "-h").out == run("sessions", "--help").out
    assert "list" in run("sessions", "-h").out


def test_help_texts_are_short(run: Run) -> None:
    for verb in leaves(get_command(build()), ""):
        command: Any = get_command(build())
        for word in verb.split():
            command = command.commands[word]
        assert 0 < len(command.help or "") <= 72, verb
        for option in command.params:
            assert len(getattr(option, "help", None) or "") <= 72, (verb, option.name)
    assert run("up", "-h").code == 0


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("dead", ["dead-letters"]),
        ("sessions cr", ["create"]),
        ("sessions list --wo", ["--workspace"]),
        ("effects resolve fleet/1.1.1 n", ["not-done"]),
    ],
)
def test_shell_completes_words(words: str, found: list[str]) -> None:
    given = {"COMP_WORDS": f"anchorwatch {words}", "COMP_CWORD": str(len(words.split()))}
    command = [sys.executable, "-P", "-m", "anchorwatch.cli.main"]
    environment = {**os.environ, "_ANCHORWATCH_COMPLETE": "complete_bash", **given}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == found


def leaves(command: Any, path: str) -> Iterator[str]:
    """Every verb below a command, by its words."""
    for name, each in command.commands.items():
        if hasattr(each, "commands"):
            yield from leaves(each, f"{path}{name} ")
        else:
            yield f"{path}{name}"
