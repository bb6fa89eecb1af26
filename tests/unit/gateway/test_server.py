"""Where the gateway listens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from anchorwatch.core.errors import BadSettings
from anchorwatch_gateway.main import bind, url_of, write_address


def test_port_zero_takes_a_free_one_and_tells_it(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as listener:
        url = url_of(listener)
        assert url.startswith("http://127.0.0.1:")
        assert not url.endswith(":0")
        write_address(tmp_path / "new", url)
        write_address(tmp_path / "new", url)
        assert json.loads((tmp_path / "new" / "gateway.json").read_text())["url"] == url
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["gateway.json"]


def test_an_address_for_all_is_told_as_one_of_this_machine() -> None:
    with bind("0.0.0.0", 0) as listener:  # noqa: S104 - for a moment
        assert url_of(listener).startswith("http://127.0.0.1:")


def test_a_port_that_is_taken_is_an_error_that_says_the_way_out() -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(BadSettings, match=f"127.0.0.1:{port}") as refused:
            bind("127.0.0.1", port)
        assert "ANCHORWATCH_PORT" in refused.value.hint
    with pytest.raises(BadSettings):
        bind("no such host.invalid", 0)
