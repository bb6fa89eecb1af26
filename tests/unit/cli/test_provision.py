"""``init`` and ``credentials``: what containers are given."""

import json
import stat
from pathlib import Path

from anchorwatch.mesh.nats_server import STORE_BYTES_MAX

from tests.unit.cli.conftest import Run


def test_init_makes_everything_once_and_prints_publisher_access(run: Run) -> None:
    ran = run("init", "--data-dir", "d")
    assert ran.code == 0
    assert "credentials publisher" in ran.out
    files = {path: path.read_text() for path in Path("d").rglob("*") if path.is_file()}
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    assert run("init", "--data-dir", "d").code == 0
    assert {path: path.read_text() for path in Path("d").rglob("*") if path.is_file()} == files


def test_service_has_its_own_password_file_and_environment(run: Run) -> None:
    run("init", "--data-dir", "d", "--nats-host", "bus")
    passwords = json.loads(Path("d/credentials.json").read_text())["users"]
    for user in ("observer", "planner", "executor", "memory", "notifier", "gateway", "yard"):
        assert Path(f"d/credentials/{user}").read_text() == passwords[user] + "\n"
        env = dict(line.split("=", 1) for line in Path(f"d/env/{user}.env").read_text().splitlines())
        assert env["ANCHORWATCH_NATS_URL"] == "nats://bus:4222"
        assert env["ANCHORWATCH_NATS_USER"] == user
        assert env["ANCHORWATCH_NATS_PASSWORD"] == passwords[user]
        assert ("ANCHORWATCH_TOKEN" in env) == (user == "gateway")
    assert Path("d/credentials/token").exists()


def test_configuration_syncs_always_and_leaves_the_address_open(run: Run) -> None:
    run("init", "--data-dir", "d")
    config = Path("d/nats.conf").read_text()
    assert '"sync_interval": "always"' in config
    # Without it, what happens to be free at a start is the limit until the next one.
    assert f'"max_file_store": {STORE_BYTES_MAX}' in config
    assert '"max_connections": 256' in config
    assert "listen" not in config
    assert "store_dir" not in config


def test_credentials_of_a_user(run: Run) -> None:
    run("init", "--data-dir", "d")
    passwords = json.loads(Path("d/credentials.json").read_text())["users"]
    report = json.loads(run("credentials", "publisher", "--data-dir", "d", "--json").out)
    assert report == {"user": "publisher", "password": passwords["publisher"]}
    assert (
        run("credentials", "--data-dir", "d").out == f"user: publisher\npassword: {passwords['publisher']}\n"
    )
    assert set(json.loads(run("credentials", "api", "--data-dir", "d", "--json").out)) == {"token"}


def test_credentials_that_are_not_there_are_not_found(run: Run) -> None:
    assert run("credentials", "publisher", "--data-dir", "nowhere").code == 4
    run("init", "--data-dir", "d")
    ran = run("credentials", "nobody", "--data-dir", "d")
    assert ran.code == 4
    assert "publisher" in ran.err
