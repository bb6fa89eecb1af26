"""The greeting of `up` matches what was started."""

import shlex
from pathlib import Path

import pytest
from anchorwatch.cli.up import greeting
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.state import MeshFile
from anchorwatch.packs import registry
from anchorwatch.settings import load

MESH = MeshFile("nats://n", "publisher", "s3cret", "http://a", "t0ken", 7, {"planner": [8]}, "now", "1")


@pytest.mark.parametrize(
    ("fallbacks", "says"),
    [
        (("rules",), "if it does not answer: the rules of the pack decide"),
        (("small", "rules"), "if it does not answer: small, then the rules of the pack decide"),
        ((), "if it does not answer, no turn is decided"),
    ],
)
def test_greeting_says_who_decides_without_the_model(
    tmp_path: Path, fallbacks: tuple[str, ...], says: str
) -> None:
    settings = load(model="openai", model_name="m-1", model_fallbacks=fallbacks)
    assert says in greeting(MESH, DataDir(tmp_path), settings, [], detach=True)


WEBHOOK = '[[channel]]\nname = "ops"\nkind = "webhook"\nurl = "http://h"\n'
LOG = '[[channel]]\nname = "here"\nkind = "log"\n'


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "only: set ANCHORWATCH_NOTIFY to a file with a channel (docs/notifications.md)"),
        ("", "only: add a channel of another kind to "),
        (LOG, "only: add a channel of another kind to "),
        (LOG + WEBHOOK, "to the channels in "),
        ("not TOML", "to the channels in "),
    ],
)
def test_greeting_says_where_notifications_go(tmp_path: Path, content: str | None, says: str) -> None:
    file = tmp_path / "notify.toml"
    if content is not None:
        file.write_text(content)
    settings = load(notify=None if content is None else file)
    data = DataDir(tmp_path)
    said = greeting(MESH, data, settings, [], detach=True)
    (line,) = [line for line in said.splitlines() if line.startswith("  notices  ")]
    assert says in line
    assert (str(data.log("notifier-1")) in line) == ("only" in says)


@pytest.mark.parametrize("bare", [True, False])
def test_greeting_proposes_the_started_services(tmp_path: Path, *, bare: bool) -> None:
    said = greeting(MESH, DataDir(tmp_path), load(), [] if bare else registry.starters(), detach=True)
    assert ("fleet jobs add" in said) == ("tail fleet" in said) == (not bare)
    assert ("agents apply FILE" in said) == bare
    assert said.splitlines()[-1].startswith("  stop       ")
    assert "s3cret" not in said
    assert "t0ken" not in said


def test_proposed_commands_are_quoted_for_a_shell(tmp_path: Path) -> None:
    mesh = MeshFile("nats://n", "publisher", "s3cret", "http://a", "t0ken", 7, {"planner": [8]}, "now", "1")
    root = tmp_path / "my data's"
    said = greeting(mesh, DataDir(root), load(), registry.starters(), detach=True)
    tries = said.partition("Try:\n")[2].splitlines()
    assert len(tries) > 1
    assert all(shlex.split(line)[-2:] == ["--data-dir", str(root)] for line in tries)
