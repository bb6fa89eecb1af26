"""The settings of a mesh are those of its last start, changed only by what a shell sets."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from anchorwatch.core.errors import BadSettings, Refused
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.mesh_settings import KEPT, MeshSettings, Resolved, resolve
from anchorwatch.service.variables import as_text
from anchorwatch.settings import PREFIX, Settings, load


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    for name in os.environ:
        if name.startswith(PREFIX):
            monkeypatch.delenv(name)
    (tmp_path / "shell").mkdir()
    monkeypatch.chdir(tmp_path / "shell")
    made = DataDir(tmp_path / "data")
    made.make()
    return made


def start(data: DataDir, *, forget: bool = False) -> Resolved:
    """Start a mesh with the settings of this shell."""
    resolved = resolve(data, load(data_dir=data.root), forget=forget)
    resolved.kept.save(data)
    return resolved


def test_another_shell_starts_with_the_same_settings(data: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("profile.toml").write_text('name = "p"')
    Path("key").write_text("s3cret\n")
    with monkeypatch.context() as shell:
        shell.setenv("ANCHORWATCH_MODEL", "openai")
        shell.setenv("ANCHORWATCH_MODEL_PROFILE", "profile.toml")
        shell.setenv("ANCHORWATCH_MODEL_KEY_FILE", "key")
        shell.setenv("ANCHORWATCH_MODEL_FALLBACKS", "small,rules")
        shell.setenv("ANCHORWATCH_NOTIFY", "notify.toml")
        shell.setenv("ANCHORWATCH_CONTEXT_TOKENS_MAX", "9000")
        first = start(data)
    here = Path.cwd()
    monkeypatch.chdir(data.root)
    second = start(data)
    assert second.kept == first.kept
    assert second.changes == ()
    settings = second.settings
    assert (settings.model, settings.context_tokens_max) == ("openai", 9000)
    assert settings.model_fallbacks == ("small", "rules")
    assert (settings.model_profile, settings.notify) == (str(here / "profile.toml"), here / "notify.toml")
    assert settings.model_key is not None
    assert settings.model_key.get_secret_value() == "s3cret"
    assert second.kept.environment["ANCHORWATCH_MODEL_KEY_FILE"] == str(here / "key")
    assert "ANCHORWATCH_MODEL" in second.not_here


def test_changes_are_named_with_both_values(data: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORWATCH_MODEL_KEY", "s3cret-1")
    monkeypatch.setenv("ANCHORWATCH_FLEET_PLACE", "s3cret-2")
    assert start(data).changes == ()
    monkeypatch.setenv("ANCHORWATCH_MODEL", "openai")
    monkeypatch.setenv("ANCHORWATCH_MODEL_KEY", "s3cret-3")
    monkeypatch.setenv("ANCHORWATCH_FLEET_PLACE", "s3cret-4")
    changed = start(data).changes
    assert changed == (
        "ANCHORWATCH_FLEET_PLACE: ******** -> ********",
        "ANCHORWATCH_MODEL: rules (default) -> openai",
        "ANCHORWATCH_MODEL_KEY: ******** -> ********",
    )
    monkeypatch.delenv("ANCHORWATCH_MODEL")
    assert start(data).changes == ()
    assert start(data, forget=True).changes == ("ANCHORWATCH_MODEL: openai -> rules (default)",)


def test_line_removed_from_the_settings_file_is_removed(
    data: DataDir, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Path("anchorwatch.toml").write_text('model = "openai"\nheartbeat_s = 60\npools = ["default", "slow"]')
    assert start(data).settings.pools == ("default", "slow")
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir(tmp_path)
        settings = start(data).settings
        assert (settings.model, settings.heartbeat_s, settings.pools) == ("openai", 60, ("default", "slow"))
    Path("anchorwatch.toml").write_text("heartbeat_s = 60")
    again = start(data)
    assert (again.settings.model, again.settings.heartbeat_s) == ("rules", 60)
    assert "ANCHORWATCH_MODEL: openai -> rules (default)" in again.changes


def test_secret_in_a_file_replaces_the_one_of_the_last_start(
    data: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as shell:
        shell.setenv("ANCHORWATCH_MODEL_KEY", "old")
        start(data)
    Path("key").write_text("new")
    monkeypatch.setenv("ANCHORWATCH_MODEL_KEY_FILE", "key")
    kept = start(data).kept.environment
    assert kept == {"ANCHORWATCH_MODEL_KEY_FILE": str(Path("key").absolute())}


def test_missing_file_of_a_kept_secret_is_named(data: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("key").write_text("s3cret")
    with monkeypatch.context() as shell:
        shell.setenv("ANCHORWATCH_MODEL_KEY_FILE", "key")
        start(data)
    Path("key").unlink()
    with pytest.raises(BadSettings, match="ANCHORWATCH_MODEL_KEY_FILE: cannot read"):
        start(data)


def test_stored_settings_are_private(data: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORWATCH_MODEL_KEY", "s3cret")
    resolved = start(data)
    assert stat.S_IMODE(data.settings.stat().st_mode) == 0o600
    assert "s3cret" not in repr(resolved.kept)


@pytest.mark.parametrize("name", ["WORKSPACE", "INSTANCE", "NATS_URL", "PORT", "URL", "TOKEN", "FAILPOINTS"])
def test_settings_of_a_client_are_not_kept(data: DataDir, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    value = {"NATS_URL": "nats://other:4222", "PORT": "0"}.get(name, "other")
    monkeypatch.setenv(f"ANCHORWATCH_{name}", value)
    assert start(data).kept == MeshSettings()


@pytest.mark.parametrize("name", KEPT)
def test_value_of_every_kept_setting_survives_its_text(data: DataDir, name: str) -> None:
    """A service reads it from a variable."""
    value = Settings.model_fields[name].default
    if value is not None:
        given = load(data_dir=data.root, **{name: as_text(value)})
        assert getattr(given, name) == value


def test_empty_list_survives_its_text(data: DataDir) -> None:
    """An empty variable means the default, which may have items."""
    given = load(data_dir=data.root, model_fallbacks=as_text(()))
    assert (as_text(()), given.model_fallbacks) == ("none", ())


def test_damaged_settings_are_refused_with_a_way_out(data: DataDir) -> None:
    data.settings.write_text(json.dumps({"ANCHORWATCH_MODEL": "openai"}))
    with pytest.raises(Refused, match=r"settings\.json is damaged"):
        resolve(data, load(data_dir=data.root))
    assert resolve(data, load(data_dir=data.root), forget=True).settings.model == "rules"
