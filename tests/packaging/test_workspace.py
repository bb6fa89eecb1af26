"""What is installed, shipped and started agrees with itself."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from tools import setup_venv
from tools.runtime_lock import runtime

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
MEMBERS = [ROOT, ROOT / "packs" / "fleet"]


def locked(lock: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE))


def project(member: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((member / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def wanted_by_members() -> set[str]:
    extras = [
        line
        for m in MEMBERS
        for extra in project(m).get("optional-dependencies", {}).values()
        for line in extra
    ]
    needed = [line for m in MEMBERS for line in project(m)["dependencies"]]
    wanted = {re.split(r"[^A-Za-z0-9_-]", str(line))[0] for line in (*needed, *extras)}
    return wanted - {"anchorwatch", "anchorwatch-fleet"}


def test_every_pinned_package_has_a_hash_and_no_address() -> None:
    entries = re.split(r"^(?=[a-z0-9-]+==)", LOCK, flags=re.MULTILINE)[1:]

    assert len(entries) == len(locked(LOCK))
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert "://" not in LOCK


def test_every_dependency_is_pinned() -> None:
    assert wanted_by_members() - locked(LOCK) == set()


def test_image_ships_the_services_and_no_test_tools() -> None:
    shipped = locked("".join(runtime(LOCK, [])))

    assert wanted_by_members() <= shipped
    assert shipped.isdisjoint({"pytest", "mypy", "ruff", "hypothesis", "testcontainers", "hatchling"})


def test_both_distributions_have_one_version() -> None:
    assert len({project(member)["version"] for member in MEMBERS}) == 1


def test_compose_starts_every_service_there_is() -> None:
    started = re.findall(
        r'command: \["serve", "([a-z]+)"\]', (ROOT / "compose.yaml").read_text(encoding="utf-8")
    )

    assert sorted(started) == sorted(entry.name for entry in entry_points(group="anchorwatch.services"))


def test_cluster_keeps_three_copies_of_every_stream() -> None:
    override = (ROOT / "compose.cluster.yaml").read_text(encoding="utf-8")
    kept = re.findall(r"^  ([a-z]+): \*kept-three-times$", override, re.MULTILINE)

    assert sorted(kept) == sorted(entry.name for entry in entry_points(group="anchorwatch.services"))


def test_architecture_page_draws_the_layers_of_the_contract() -> None:
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    (drawn,) = re.findall(r"in shared: (.+)", page)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (layers,) = [each["layers"] for each in contracts["contracts"] if each["id"] == "layers"]

    assert drawn.split(" → ") == [layer.strip("()") for layer in layers]


def test_documented_paths_exist() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    missing = [
        f"{page.name}: {path}"
        for page in pages
        for path in re.findall(
            r"`((?:shared|services|packs|tests|docs|tools)/[a-z_/.]+)`", page.read_text(encoding="utf-8")
        )
        if not (ROOT / path).exists()
    ]

    assert missing == []


def test_relative_links_of_the_docs_exist() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]

    assert broken == []


def test_environment_of_a_moved_tree_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scripts and `activate` contain the old path."""
    tree = tmp_path / "tree"
    tree.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tree / ".venv")], check=True)
    monkeypatch.chdir(tree)
    assert not setup_venv.was_moved()
    monkeypatch.chdir(tmp_path)
    tree.rename("moved")
    monkeypatch.chdir("moved")
    assert setup_venv.was_moved()
