"""README and docs name commands, make targets and variables that exist (INV-1639)."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from anchorwatch.service.variables import known_variables, unknown_variables

from tests.unit.cli.conftest import Run

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted(set((ROOT / "docs").glob("*.md")) - {ROOT / "docs" / "invariants.md"})]
PLACEHOLDERS = {"SESSION": "fleet", "SERVICE": "planner", "CALL": "fleet/1.1.1", "PLAN": "plan"}
# They start something, or read a file that the reader has.
NOT_RUN = ("up", "demo", "crash-test", "models probe", "serve", "agents apply", "VERB")
IN_A_BLOCK = r"^(?:    |\$ )(anchorwatch .*)$"
IN_A_SENTENCE = r"`(anchorwatch [^`\n]*)`"
USAGE = 2


def commands(form: str) -> list[str]:
    """The command lines of this form on all pages."""
    # A command that is continued on the next line is one command.
    texts = (re.sub(r"\\\n +", " ", page.read_text(encoding="utf-8")) for page in PAGES)
    return sorted({each for text in texts for each in re.findall(form, text, re.MULTILINE) if is_run(each)})


def is_run(command: str) -> bool:
    return not " ".join(words_of(command)).startswith(NOT_RUN)


def words_of(command: str) -> list[str]:
    words = shlex.split(command, comments=True)[1:]
    return [PLACEHOLDERS.get(word, word.partition("|")[0]) for word in words]


@pytest.mark.parametrize("command", commands(IN_A_BLOCK))
def test_documented_command_is_valid_usage(run: Run, command: str) -> None:
    """No mesh runs here: a valid command finds none, and an invalid one is refused first."""
    ran = run(*words_of(command))
    assert ran.code != USAGE, ran.err


@pytest.mark.parametrize("command", commands(IN_A_SENTENCE))
def test_command_in_a_sentence_is_valid_usage(run: Run, command: str) -> None:
    """A sentence may name a verb without its arguments."""
    ran = run(*words_of(command))
    assert ran.code != USAGE or "Missing argument" in ran.err, ran.err


def test_documented_nats_commands_name_server_and_user() -> None:
    """Without them, the client of NATS finds another server, or is refused."""
    lines = [
        line
        for page in PAGES
        for line in re.findall(r"^ +nats pub .*$", page.read_text("utf-8"), re.MULTILINE)
    ]
    assert lines
    assert [line for line in lines if not {"--server", "--user", "--password"} <= set(line.split())] == []


def test_documented_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {
        word
        for page in (*PAGES, ROOT / "CONTRIBUTING.md")
        for word in re.findall(
            r"(?:^    |`|&& )make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert len(named) > 8
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documented_variables_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"\bANCHORWATCH_[A-Z0-9_]*[A-Z0-9]\b(?!_)", text)) - known_variables()
    # A pattern such as ANCHORWATCH_<PACK>_… ends before its first bracket.
    assert unknown_variables(dict.fromkeys(named, "")) == {}
