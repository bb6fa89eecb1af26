from __future__ import annotations

from pathlib import Path

from anchorwatch_fleet.yard.births import Birth, read_births, write_birth


def test_births_are_read_as_they_were_written(tmp_path: Path) -> None:
    births = [Birth("w-1", 1, "k", 10), Birth("w-1", 2, "r", 11)]
    for each in births:
        write_birth(tmp_path / "births", each)

    assert read_births(tmp_path / "births") == births


def test_torn_line_is_skipped_and_hides_no_birth(tmp_path: Path) -> None:
    path = tmp_path / "births"
    write_birth(path, Birth("w-1", 1, "k", 10))
    with path.open("ab") as file:
        file.write(b'{"instance": "w-2", "ep')
    write_birth(path, Birth("w-3", 1, "k", 12))

    assert read_births(path) == [Birth("w-1", 1, "k", 10), Birth("w-3", 1, "k", 12)]


def test_missing_births_file_has_no_births(tmp_path: Path) -> None:
    assert read_births(tmp_path / "births") == []
