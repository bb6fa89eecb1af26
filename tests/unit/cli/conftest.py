from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from anchorwatch.cli.main import main

from tests.unit.cli.gateways import TOKEN, Gateway, gateway


@dataclass(frozen=True)
class Ran:
    """What a verb did."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but those of the test: neither a file nor the environment of whoever runs it."""
    import os  # noqa: PLC0415 - read at each test

    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("ANCHORWATCH_"):
            monkeypatch.delenv(name)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process."""

    def run_verb(*words: str) -> Ran:
        code = main(list(words))
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return run_verb


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    """A gateway that verbs find by the environment."""
    with gateway() as remote:
        monkeypatch.setenv("ANCHORWATCH_URL", remote.url)
        monkeypatch.setenv("ANCHORWATCH_TOKEN", TOKEN)
        monkeypatch.setattr("anchorwatch.cli.api.RETRY_PAUSE_S", 0.01)
        yield remote
