import json
import stat
from pathlib import Path

import pytest
from anchorwatch.core.errors import Refused
from anchorwatch.mesh.credentials import Credentials, all_users
from anchorwatch.mesh.files import DataDir


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    directory = DataDir.at(tmp_path / "data")
    directory.make()
    return directory


def test_each_user_has_its_own_password_in_a_private_file(data: DataDir) -> None:
    made = Credentials.load_or_make(data)
    assert set(made.passwords) == set(all_users())
    assert len({*made.passwords.values(), made.token}) == len(all_users()) + 1
    assert all(len(secret) >= 32 for secret in made.passwords.values())
    assert stat.S_IMODE(data.credentials.stat().st_mode) == 0o600


def test_credentials_survive_a_restart(data: DataDir) -> None:
    assert Credentials.load_or_make(data) == Credentials.load_or_make(data)


def test_new_user_gets_a_password_and_others_keep_theirs(data: DataDir) -> None:
    first = Credentials.load_or_make(data)
    value = json.loads(data.credentials.read_text())
    del value["users"]["notifier"]
    data.credentials.write_text(json.dumps(value))
    second = Credentials.load_or_make(data)
    assert {user: second.passwords[user] for user in all_users() if user != "notifier"} == {
        user: first.passwords[user] for user in all_users() if user != "notifier"}  # fmt: skip
    assert second.passwords["notifier"] != first.passwords["notifier"]
    assert second.token == first.token


def test_token_of_the_settings_replaces_the_stored_one(data: DataDir) -> None:
    Credentials.load_or_make(data)
    assert Credentials.load_or_make(data, token="chosen").token == "chosen"
    assert Credentials.load_or_make(data).token == "chosen"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"users": 3, "token": "x"}', '{"users": {}}', "\x00"])
def test_damaged_credentials_are_refused_and_not_replaced(data: DataDir, text: str) -> None:
    data.credentials.write_text(text)
    with pytest.raises(Refused, match=r"credentials\.json"):
        Credentials.load_or_make(data)
    assert data.credentials.read_text() == text


def test_repr_of_credentials_has_no_secret(data: DataDir) -> None:
    made = Credentials.load_or_make(data)
    assert made.token not in repr(made)
