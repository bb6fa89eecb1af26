"""The effect key of a command whose record has none, as the first release derived it."""

from __future__ import annotations

import re

from anchorwatch.core.effect.intent import KEY_CHARS_MAX
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.session.events import CommandDecided
from anchorwatch.executor.job import Job, effect_key
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.from_regex(r"[a-z0-9][a-z0-9-]{0,62}", fullmatch=True)
NUMBERS = st.integers(1, 10**9)


def job(
    workspace: str = "default", session: str = "fleet", digest: str = "d1", run: int = 15, n: int = 1
) -> Job:
    call = CallId(run, 2, n)
    command = CommandDecided(call, "turn_1", 1, "keeper@1", "default", "fire", {}, "", "", "d", 1)
    return Job(SessionRef(workspace, session), 9, digest, command)


def test_effect_key_is_readable_and_stable() -> None:
    key = effect_key(job())
    assert key == "aw-default-fleet-15-2-1-b9429bc658dc486a"
    assert key == effect_key(job())


@given(NAMES, NAMES, NUMBERS, NUMBERS)
def test_effect_key_is_a_valid_label(workspace: str, session: str, run: int, n: int) -> None:
    key = effect_key(job(workspace, session, run=run, n=n))
    assert len(key) <= KEY_CHARS_MAX
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", key)


def test_effect_keys_differ_by_every_part() -> None:
    jobs = [
        job(),
        job("default-fleet", "x"),
        job("default", "fleet-x"),
        job(digest="d2"),
        job(n=2),
        job("w" * 63, "s" * 62 + "a"),
        job("w" * 63, "s" * 62 + "b"),
    ]
    assert len({effect_key(each) for each in jobs}) == len(jobs)
