"""The file that says who is told of what."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from anchorwatch.core.errors import BadSettings
from anchorwatch.core.names import SessionRef
from anchorwatch_notifier.channels import RETRY_AFTER_S_MAX, retry_after_s
from anchorwatch_notifier.notices import KINDS, Notice, NoticeKind
from anchorwatch_notifier.routes import Route, load

from tests.support.receiver import SECRET

NOW = datetime(2026, 3, 17, 18, 0, 0, tzinfo=UTC)


def notice(*kinds: NoticeKind, session: str = "fleet", workspace: str = "default") -> Notice:
    return Notice(SessionRef(workspace, session), 9, 5, "d" * 64, kinds, "info", "title")


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "notify.toml"
    file.write_text(text)
    return file


def test_default_log_receives_everything_except_ended_turns() -> None:
    (route,) = load(None)
    assert (route.name, route.kind) == ("log", "log")
    assert [kind for kind in KINDS if not route.wants(notice(kind))] == ["turn_ended"]
    assert route.wants(notice("turn_failed", "turn_ended"))


@pytest.mark.parametrize(
    ("filters", "report"),
    [
        ({}, True),
        ({"session": "fleet"}, True),
        ({"session": "other"}, False),
        ({"workspace": "default"}, True),
        ({"workspace": "other"}, False),
        ({"workspace": "default", "session": "other"}, False),
        ({"on": ("message",)}, False),
    ],
)
def test_channel_filters_its_notices(filters: dict[str, object], *, report: bool) -> None:
    route = Route.model_validate({"name": "log", "kind": "log", **filters})
    assert route.wants(notice("turn_failed", "turn_ended")) is report


def test_routes_file_reads_every_kind_of_channel(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET + "\n")
    routes = load(
        write(
            tmp_path,
            f"""
            [[channel]]
            name = "log"
            kind = "log"
            on = ["message"]
            [[channel]]
            name = "papers"
            kind = "file"
            path = "papers.jsonl"
            [[channel]]
            name = "hook"
            kind = "webhook"
            url = "https://example.org/hook"
            secret_file = "secret"
            [[channel]]
            name = "hook-2"
            kind = "webhook"
            url = "https://example.org/hook"
            secret = "{SECRET}"
            """,
        )
    )
    assert [route.kind for route in routes] == ["log", "file", "webhook", "webhook"]
    assert routes[1].path == tmp_path / "papers.jsonl"
    assert routes[2].secret == routes[3].secret
    assert SECRET not in repr(routes)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[channel]", "cannot be read"),
        ("", "channel: Field required"),
        ('[[channel]]\nname = "UPPER"\nkind = "log"', "channel.0.name"),
        ('[[channel]]\nname = "x"\nkind = "pigeon"', "channel.0.kind"),
        ('[[channel]]\nname = "x"\nkind = "log"\non = ["everything"]', "channel.0.on.0"),
        ('[[channel]]\nname = "x"\nkind = "log"\ncolour = 1', "channel.0.colour"),
        ('[[channel]]\nname = "x"\nkind = "file"', "needs a path"),
        ('[[channel]]\nname = "x"\nkind = "webhook"\nsecret = "whsec_aaaa"', "needs a url"),
        ('[[channel]]\nname = "x"\nkind = "webhook"\nurl = "https://x.y"', "needs a secret"),
        ('[[channel]]\nname = "x"\nkind = "webhook"\nurl = "https://x.y"\nsecret = "whsec_"', "is invalid"),
        (
            '[[channel]]\nname = "x"\nkind = "webhook"\nurl = "https://x.y"\nsecret_file = "gone"',
            "cannot be read",
        ),
        ('[[channel]]\nname = "x"\nkind = "log"\n[[channel]]\nname = "x"\nkind = "log"', "the same name"),
    ],
)
def test_unusable_file_names_the_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadSettings) as raised:
        load(write(tmp_path, text))
    assert says in str(raised.value)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="cannot be read"):
        load(tmp_path / "gone.toml")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("120", 120.0),
        ("0", 0.0),
        ("99999999", RETRY_AFTER_S_MAX),
        ("Tue, 17 Mar 2026 18:01:00 GMT", 60.0),
        ("Tue, 17 Mar 2026 17:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
    ],
)
def test_receiver_says_how_long_to_wait(value: str | None, seconds: float | None) -> None:
    assert retry_after_s(value, NOW) == seconds
