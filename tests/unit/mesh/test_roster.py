"""The environment of each process: the settings and secrets that it needs, and no others."""

from pathlib import Path

import pytest
from anchorwatch.core.errors import BadInput, NotFound, Refused
from anchorwatch.mesh.credentials import Credentials, all_users
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.roster import Roster, check_count


@pytest.fixture
def roster(tmp_path: Path) -> Roster:
    credentials = Credentials({user: f"password-of-{user}" for user in all_users()}, "the-token")
    return Roster(DataDir.at(tmp_path), credentials, nats_port=4300, port=8500, host="127.0.0.1")


def test_service_receives_only_its_own_password(roster: Roster) -> None:
    environment = roster.service("executor", "executor-2").environment
    assert environment["ANCHORWATCH_NATS_USER"] == "executor"
    assert environment["ANCHORWATCH_NATS_PASSWORD"] == "password-of-executor"
    assert environment["ANCHORWATCH_INSTANCE"] == "executor-2"
    assert environment["ANCHORWATCH_NATS_URL"] == "nats://127.0.0.1:4300"
    assert environment["ANCHORWATCH_DATA_DIR"] == str(roster.data.root)
    values = set(environment.values())
    assert not values & {f"password-of-{user}" for user in all_users() if user != "executor"}
    assert "the-token" not in values


def test_only_gateway_has_the_token_and_planner_the_model_key(
    roster: Roster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MODEL_KEY", "MODEL_KEY_FILE", "TOKEN", "TOKEN_FILE", "NATS_PASSWORD_FILE"):
        monkeypatch.setenv(f"ANCHORWATCH_{name}", f"outer-{name}")
    gateway = roster.service("gateway", "gateway-1").environment
    planner = roster.service("planner", "planner-1").environment
    assert gateway["ANCHORWATCH_TOKEN"] == "the-token"
    assert not {"ANCHORWATCH_MODEL_KEY", "ANCHORWATCH_MODEL_KEY_FILE", "ANCHORWATCH_TOKEN_FILE"} & set(
        gateway
    )
    assert planner["ANCHORWATCH_MODEL_KEY"] == "outer-MODEL_KEY"
    assert planner["ANCHORWATCH_MODEL_KEY_FILE"] == "outer-MODEL_KEY_FILE"
    assert not {"ANCHORWATCH_TOKEN", "ANCHORWATCH_TOKEN_FILE", "ANCHORWATCH_NATS_PASSWORD_FILE"} & set(
        planner
    )


def test_nats_server_environment_has_no_secret(roster: Roster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORWATCH_MODEL_KEY", "sk-secret")
    assert set(roster.nats().environment) == {"PATH"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])  # noqa: S104 - not bound
def test_wildcard_address_is_reached_by_loopback(roster: Roster, host: str) -> None:
    everywhere = Roster(roster.data, roster.credentials, 4300, 8500, host)
    assert everywhere.api_url == "http://127.0.0.1:8500"


def test_only_scalable_services_can_be_scaled() -> None:
    check_count("executor", 3)
    check_count("gateway", 1)
    with pytest.raises(Refused, match="exactly one gateway"):
        check_count("gateway", 2)
    with pytest.raises(NotFound, match="unknown service 'exekutor'"):
        check_count("exekutor", 2)
    with pytest.raises(BadInput):
        check_count("executor", 1000)
