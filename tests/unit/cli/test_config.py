"""``config``: every setting with its source, and no secret; docs/settings.md is the same table."""

import json
from pathlib import Path

import pytest
from anchorwatch.cli.config import markdown_table
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.mesh_settings import MeshSettings, Value
from anchorwatch.settings import Settings, load, secret_names

from tests.unit.cli.conftest import Run

DOCS = Path(__file__).parents[3] / "docs" / "settings.md"


def test_documentation_lists_exactly_the_settings() -> None:
    table = DOCS.read_text(encoding="utf-8").split("<!-- the table -->\n")[1].split("\n## ")[0]
    assert table == markdown_table(), "make it so: anchorwatch config --markdown"


def test_every_setting_has_a_description() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_secrets_are_masked_from_every_source(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("s3cret-in-a-file\n")
    monkeypatch.setenv("ANCHORWATCH_TOKEN", "s3cret-in-the-environment")
    monkeypatch.setenv("ANCHORWATCH_MODEL_KEY_FILE", str(tmp_path / "key"))
    Path("anchorwatch.toml").write_text('nats_password = "s3cret-in-the-settings"')
    for words in (["config"], ["config", "--json"]):
        out = run(*words).out
        assert "s3cret" not in out
        assert out.count("********") == 3
    assert load().model_key is not None
    assert load().model_key.get_secret_value() == "s3cret-in-a-file"  # type: ignore[union-attr]  # just looked at


def test_source_of_each_value_is_shown(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-token")
    monkeypatch.setenv("ANCHORWATCH_LEASE_S", "9")
    monkeypatch.setenv("ANCHORWATCH_TOKEN_FILE", str(tmp_path / "token"))
    Path("anchorwatch.toml").write_text("heartbeat_s = 60\nlease_s = 3")
    report = json.loads(run("config", "--json").out)["settings"]
    assert (report["lease_s"]["value"], report["lease_s"]["source"]) == (9, "environment")
    assert (report["heartbeat_s"]["value"], report["heartbeat_s"]["source"]) == (60, "anchorwatch.toml")
    assert report["token"]["source"] == f"file {tmp_path / 'token'}"
    assert (report["port"]["value"], report["port"]["source"]) == (8420, "default")


def test_list_is_shown_as_it_is_written(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORWATCH_POOLS", "default,slow")
    shown = {line.split()[0]: line.split()[1] for line in run("config").out.splitlines()}
    assert shown["ANCHORWATCH_POOLS"] == "default,slow"
    assert shown["ANCHORWATCH_MODEL_FALLBACKS"] == "rules"
    monkeypatch.setenv("ANCHORWATCH_MODEL_FALLBACKS", "none")
    assert load().model_fallbacks == ()


def test_misspelt_variable_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORWATCH_HARTBEAT_S", "9")
    monkeypatch.setenv("ANCHORWATCH_FLEET_PLACE", "a setting of a pack")
    named = "ANCHORWATCH_HARTBEAT_S is set, but is not a setting; did you mean ANCHORWATCH_HEARTBEAT_S?"
    assert run("config").out.splitlines()[-1] == named


def test_setting_of_the_last_start_is_shown_as_such(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    data = DataDir.at(Path("d"))
    data.make()
    MeshSettings({"ANCHORWATCH_HEARTBEAT_S": Value("60"), "ANCHORWATCH_LEASE_S": Value("3")}).save(data)
    monkeypatch.setenv("ANCHORWATCH_DATA_DIR", "d")
    monkeypatch.setenv("ANCHORWATCH_LEASE_S", "9")
    report = json.loads(run("config", "--json").out)["settings"]
    assert (report["heartbeat_s"]["value"], report["heartbeat_s"]["source"]) == (60, "last start")
    assert (report["lease_s"]["value"], report["lease_s"]["source"]) == (9, "environment")


def test_secret_file_that_is_missing_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORWATCH_NATS_PASSWORD_FILE", "/nowhere/password")
    ran = run("config")
    assert ran.code == 2
    assert "ANCHORWATCH_NATS_PASSWORD_FILE: cannot read /nowhere/password" in ran.err


def test_environment_overrides_a_secret_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-the-file")
    monkeypatch.setenv("ANCHORWATCH_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("ANCHORWATCH_TOKEN", "from-the-environment")
    token = load().token
    assert token is not None
    assert token.get_secret_value() == "from-the-environment"


def test_all_secrets_are_known_as_such() -> None:
    assert set(secret_names()) == {"token", "nats_password", "model_key"}


@pytest.mark.parametrize("name", ["DATA_DIR", "NOTIFY", "POOLS", "PORT", "MODEL_KEY", "TOKEN_FILE"])
def test_empty_variable_counts_as_not_set(run: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"ANCHORWATCH_{name}", "")
    report = json.loads(run("config", "--json").out)["settings"][name.lower().removesuffix("_file")]
    assert report["value"] == report["default"]
    assert report["source"] == "default"


@pytest.mark.parametrize(("name", "value"), [
    ("HEARTBEAT_S", "inf"),
    ("DEBOUNCE_P0_S", "nan"),
    ("WORKSPACE", "Bad Name"),
    ("POOLS", "default,GPU"),
    ("NATS_URL", "zzz"),
    ("NATS_URL", "nats://a:4222,,nats://b"),
    ("NATS_URL", "http://127.0.0.1:4222"),
    ("NATS_URL", "ws://127.0.0.1:8080"),
    ("NATS_URL", "127.0.0.1:4222"),
    ("NATS_URL", "nats://"),
    ("NATS_URL", "nats://a b:4222"),
    ("NATS_URL", "nats://a:70000"),
    ("NATS_URL", "nats://a:4222/path"),
])  # fmt: skip
def test_unusable_setting_is_refused_in_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"ANCHORWATCH_{name}", value)
    ran = run("config")
    assert ran.code == 2
    assert ran.err.startswith(f"anchorwatch: ANCHORWATCH_{name}")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("value", [
    "nats://127.0.0.1:4222",
    "nats://nats",
    "tls://n1.example.org:4222, tls://n2.example.org:4222",
    "nats://[::1]:8080",
    "tls://user:p%40ss@nats.example.org/",
])  # fmt: skip
def test_addresses_of_nats_servers(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ANCHORWATCH_NATS_URL", value)
    assert load().nats_url == value


def test_invalid_address_is_located_and_not_repeated(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORWATCH_NATS_URL", "nats://fine:4222,nots://user:s3cret@b")
    ran = run("serve", "planner")
    assert ran.code == 2
    assert "part 2 of 2 is not a NATS server address; write nats://HOST:PORT" in ran.err
    assert "s3cret" not in ran.err


def test_version_is_also_given_as_json(run: Run) -> None:
    number = json.loads(run("version", "--json").out)["version"]
    assert run("version").out == f"anchorwatch {number}\n"
