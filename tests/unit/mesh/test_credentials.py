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


def test_every_user_has_a_password_of_its_own_and_only_the_owner_reads_them(data: DataDir) -> None:
    made = Credentials.load_or_make(data)
    assert set(made.passwords) == set(all_users())
    assert len({*made.passwords.values(), made.token}) == len(all_users()) + 1
    assert all(len(secret) >= 32 for secret in made.passwords.values())
    assert stat.S_IMODE(data.credentials.stat().st_mode) == 0o600


def test_they_stay_the_same(data: DataDir) -> None:
    assert Credentials.load_or_make(data) == Credentials.load_or_make(data)


def test_a_user_that_came_later_gets_one_and_the_others_keep_theirs(data: DataDir) -> None:
    first = Credentials.load_or_make(data)
    value = json.loads(data.credentials.read_text())
    del value["users"]["notifier"]
    data.credentials.write_text(json.dumps(value))
    second = Credentials.load_or_make(data)
    assert {user: second.passwords[user] for user in all_users() if user != "notifier"} == {
        user: first.passwords[user] for user in all_users() if user != "notifier"}  # fmt: skip
    assert second.passwords["notifier"] != first.passwords["notifier"]
    assert second.token == first.token


def test_a_token_from_the_settings_holds(data: DataDir) -> None:
    Credentials.load_or_make(data)
    assert Credentials.load_or_make(data, token="chosen").token == "chosen"
    assert Credentials.load_or_make(data).token == "chosen"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"users": 3, "token": "x"}', '{"users": {}}', "\x00"])
def test_a_damaged_file_is_not_replaced_in_silence(data: DataDir, text: str) -> None:
    data.credentials.write_text(text)
    with pytest.raises(Refused, match=r"credentials\.json"):
        Credentials.load_or_make(data)
    assert data.credentials.read_text() == text


def test_a_secret_is_in_no_repr(data: DataDir) -> None:
    made = Credentials.load_or_make(data)
    assert made.token not in repr(made)
