"""What an endpoint's profile says, and what is said of one that cannot be used."""

from pathlib import Path
from typing import Any

import pytest
from anchorwatch.core.errors import BadSettings
from anchorwatch.models.profile import JSON_SCHEMA, OPENAI, Profile, find, read


def test_two_profiles_are_shipped() -> None:
    assert find("openai") is OPENAI
    assert find(" json-schema ") is JSON_SCHEMA
    assert (OPENAI.calls, OPENAI.parallel) == ("native", True)
    assert (JSON_SCHEMA.calls, JSON_SCHEMA.parallel) == ("json-schema", False)


def test_profile_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\ncontext_tokens = 8192\n[extra]\ntemperature = 0\n')
    assert find(str(file)) == Profile(name="mine", context_tokens=8192, extra={"temperature": 0})


@pytest.mark.parametrize("name", ["vllm", "", "missing.toml", "/"])
def test_unknown_profile_is_reported_with_the_known_ones(name: str) -> None:
    with pytest.raises(BadSettings, match="unknown profile") as raised:
        find(name)
    assert "`openai`, `json-schema`" in raised.value.hint


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"calls": "xml"}, "calls must be native or json-schema"),
        ({"colour": "blue"}, "colour is not a known field"),
        ({"overflow": "silent"}, "context_tokens"),
        ({"extra": {"messages": []}}, "'messages' is set by the request itself"),
        ({"context_tokens": -1}, "context_tokens must be at least 0"),
    ],
)
def test_each_fault_of_one_is_named(value: dict[str, Any], fault: str) -> None:
    with pytest.raises(BadSettings, match=fault):
        read(value, "mine.toml")


def test_invalid_toml_file_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(b"\xff = [")
    with pytest.raises(BadSettings, match="cannot be read"):
        find(str(file))
