from __future__ import annotations

import pytest
from anchorwatch.cli import checks
from anchorwatch.core.names import SessionRef


def test_name_is_printed_as_verbs_take_it_in_each_workspace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    night = SessionRef("night", "fleet")
    assert checks.session(SessionRef("default", "fleet")) == "fleet"
    assert checks.session(night) == "fleet of workspace night"
    monkeypatch.setenv("ANCHORWATCH_WORKSPACE", "night")
    assert checks.session(night) == "fleet"
    assert checks.session(SessionRef("default", "fleet")) == "fleet of workspace default"
