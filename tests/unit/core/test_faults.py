"""A value that cannot be taken: its field, and what is allowed, in words."""

from __future__ import annotations

from typing import Any

import pytest
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.faults import place_of, problem_of
from pydantic import ValidationError

AGENT: dict[str, Any] = {"name": "keeper", "pack": "fleet"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "A keeper"}, "name must be 1-63 characters of a-z, 0-9 and '-', not starting with '-'"),
        ({"model": 4}, "model must be text"),
        ({"grants": "all"}, "grants must be a list"),
        ({"limits": {"steps_max": 0}}, "limits.steps_max must be at least 1"),
        ({"limits": {"steps_max": 201}}, "limits.steps_max must be at most 200"),
        ({"limits": {"steps_max": "x"}}, "limits.steps_max must be a whole number"),
        ({"heartbeat_s": "soon"}, "heartbeat_s must be a number"),
        ({"config": 3}, "config must be an object"),
        ({"typo": 1}, "typo is not a known field"),
    ],
)
def test_fault_names_the_allowed_values(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        AgentSpec.model_validate(AGENT | given)
    (fault,) = refused.value.errors()
    assert f"{place_of(fault, 'the file')} {problem_of(fault)}" == said


def test_fault_without_its_own_text_keeps_the_original_one() -> None:
    fault = {"type": "url_scheme", "loc": (), "msg": "URL scheme should be 'http'", "ctx": {}}
    assert f"{place_of(fault, 'the file')} {problem_of(fault)}" == (
        "the file is invalid: URL scheme should be 'http'"
    )


def test_pattern_without_its_own_text_is_not_shown() -> None:
    fault = {"type": "string_pattern_mismatch", "loc": ("a",), "msg": "…", "ctx": {"pattern": "^[ab]$"}}
    assert problem_of(fault) == "has an invalid form"
    assert problem_of(fault, {"^[ab]$": "a or b"}) == "must be a or b"
