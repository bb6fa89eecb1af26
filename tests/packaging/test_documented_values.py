"""The pages list exactly the values, verbs, options, codes and routes that the product has (INV-1655)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from anchorwatch.cli.main import INTERRUPTED, build
from anchorwatch.core import errors
from anchorwatch.core.agents import Limits
from anchorwatch.core.session.wakes import Disposition
from anchorwatch.core.tools import EffectClass
from anchorwatch_gateway.state import Counters
from anchorwatch_notifier.notices import CRITICAL, KINDS
from typer.main import get_command

from tests.support.openapi import description

DOCS = Path(__file__).parents[2] / "docs"
FAULT = 1
CODE = ("shared", "services", "packs", "tests")


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def row(name: str, first: str) -> str:
    """The last cell of a row of a table."""
    found = re.search(rf"^ *\| {re.escape(first)} \|(.*)\|$", page(name), re.MULTILINE)
    assert found, f"{name} has no row {first}"
    return found[1]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_dispositions_are_listed() -> None:
    assert quoted(row("glossary.md", "disposition")) == list(get_args(Disposition))
    of_wakes = row("api.md", "`GET /api/sessions/{id}/wakes` (`disposition`, `kind`)")
    assert set(quoted(of_wakes)) >= {*get_args(Disposition), "pending"}


def test_effect_classes_are_listed() -> None:
    assert quoted(row("glossary.md", "effect class")) == [str(each) for each in EffectClass]


def test_kinds_of_notices_are_listed_with_their_severity() -> None:
    table = page("notifications.md").partition("| kind of notice |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", table, re.MULTILINE)
    assert sorted(kind for kind, _ in rows) == sorted(KINDS)
    assert {kind for kind, severity in rows if severity.startswith("critical")} == CRITICAL


def test_exit_codes_are_listed() -> None:
    documented = {int(code) for code in re.findall(r"^  \| (\d+) \|", page("cli.md"), re.MULTILINE)}
    kinds = [each for each in vars(errors).values() if isinstance(each, type)]
    codes = {each.exit_code for each in kinds if issubclass(each, errors.AnchorWatchError)}
    assert documented == codes | {0, FAULT, INTERRUPTED}


def test_limits_of_an_agent_are_listed() -> None:
    comment = page("cli.md").partition("[limits]")[2].partition("\n    steps_max")[0]
    assert sorted(re.findall(r"[a-z_]{5,}", comment.replace("below", ""))) == sorted(Limits.model_fields)


def verbs(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, each in getattr(command, "commands", {}).items():
        yield from verbs(each, (*path, name))
    if path and not hasattr(command, "commands"):
        yield " ".join(path), command


@pytest.mark.parametrize(
    ("name", "verb"),
    list(verbs(get_command(build()))),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_verb_and_its_options_are_listed(name: str, verb: Any) -> None:
    text = page("cli.md") + page("models.md")
    *noun, last = name.split()
    # `schedule show|pause|resume|delete NAME`: one entry for several verbs of a noun.
    assert re.search(rf"`{' '.join([*noun, ''])}(?:[a-z-]+\\?\|)*{last}\b", text), name
    for parameter in verb.params:
        if not getattr(parameter, "hidden", False) and parameter.opts[0].startswith("-"):
            assert any(f"{option}" in text for option in parameter.opts), f"{name}: {parameter.opts}"


def test_routes_are_listed() -> None:
    text = page("api.md")
    ends = {path: path.rstrip("}").rpartition("/")[2].partition("{")[0] for path in description()["paths"]}
    assert [path for path, end in ends.items() if end and f"/{end}" not in text] == []


def test_metrics_are_listed() -> None:
    names = {
        f"{metric.name}_total" if metric.type == "counter" else metric.name
        for metric in Counters().registry.collect()
    }
    assert names <= set(quoted(row("api.md", "`GET /metrics`")))


def test_names_in_the_checklists_exist() -> None:
    """A name of code or of a table in a checklist; a name in capitals with SERVICE or ACT is a placeholder."""
    named = set(re.findall(r"`(\w*(?:[a-z][A-Z]|_)\w*)`", page("adding.md")))
    files = [
        DOCS.parent / "pyproject.toml",
        *(each for top in CODE for each in (DOCS.parent / top).rglob("*.py")),
    ]
    code = "\n".join(each.read_text(encoding="utf-8") for each in files)
    assert len(named) > 20
    assert [name for name in sorted(named) if name not in code and "SERVICE_ACT" not in name] == []


def test_readme_links_every_page() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert [each.name for each in DOCS.glob("*.md") if f"docs/{each.name}" not in readme] == []
