"""Where the gateway listens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from anchorwatch.core.errors import BadSettings
from anchorwatch_gateway.main import bind, url_of, write_address


def test_port_zero_takes_a_free_port(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as listener:
        url = url_of(listener)
        assert url.startswith("http://127.0.0.1:")
        assert not url.endswith(":0")
        write_address(tmp_path / "new", url)
        write_address(tmp_path / "new", url)
        assert json.loads((tmp_path / "new" / "gateway.json").read_text())["url"] == url
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["gateway.json"]


def test_wildcard_address_becomes_a_loopback_url() -> None:
    with bind("0.0.0.0", 0) as listener:  # noqa: S104 - for a moment
        assert url_of(listener).startswith("http://127.0.0.1:")


def test_taken_port_is_an_error_with_a_hint() -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(BadSettings, match=f"127.0.0.1:{port}") as refused:
            bind("127.0.0.1", port)
        assert "ANCHORWATCH_PORT" in refused.value.hint
    with pytest.raises(BadSettings):
        bind("no such host.invalid", 0)
