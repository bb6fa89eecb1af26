"""Packs are found by their entry points; one that cannot be loaded is a fault of the pack, and said as one."""

from pathlib import Path

import pytest
from anchorwatch.core.errors import NotFound
from anchorwatch.packs import registry


def install(site: Path, name: str, value: str) -> None:
    """An entry point as an installer writes it."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[anchorwatch.packs]\n{name} = {value}\n")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, "ModuleNotFoundError"),
        ("pack = 1 / 0", "ZeroDivisionError"),
        ("other = 1", "AttributeError"),
    ],
)
def test_pack_that_cannot_be_loaded_is_named_with_its_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, fault: str
) -> None:
    module = f"broken_{fault.lower()}"
    install(tmp_path, module, f"{module}:pack")
    if text is not None:
        (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert module in registry.names()
    with pytest.raises(NotFound, match=f"the pack '{module}' cannot be loaded: {fault}"):
        registry.load(module)


def test_unknown_pack_is_reported_with_the_known_ones() -> None:
    with pytest.raises(NotFound, match=r"unknown pack 'nope'.*fleet"):
        registry.load("nope")
