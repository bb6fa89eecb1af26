"""The file channel: lines of several notifiers in one file."""

from __future__ import annotations

import asyncio
import fcntl
import json
import threading
from pathlib import Path

import pytest
from anchorwatch.core.names import SessionRef
from anchorwatch_notifier import channels
from anchorwatch_notifier.channels import FileChannel, NotSent
from anchorwatch_notifier.notices import Notice


def notice_of(sequence: int = 9) -> Notice:
    return Notice(SessionRef("default", "fleet"), sequence, 5, "d" * 64, ("turn_ended",), "info", "title")


def ids(path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


async def test_stopped_notifier_writes_no_line_that_another_wrote(
    tmp_path: Path,
) -> None:
    path = tmp_path / "papers.jsonl"
    stopped, other = FileChannel(path), FileChannel(path)
    await stopped.send("first", notice_of())
    for id_ in ("a", "b", "c"):
        await other.send(id_, notice_of())
    for id_ in ("b", "d", "a"):
        await stopped.send(id_, notice_of())
    assert ids(path) == ["first", "a", "b", "c", "d"]
    path.unlink()
    await other.send("e", notice_of())
    await stopped.send("e", notice_of())
    assert ids(path) == ["e"]


async def test_line_in_progress_is_not_taken_for_one_cut_short(
    tmp_path: Path,
) -> None:
    path = tmp_path / "papers.jsonl"
    with path.open("ab", buffering=0) as another:
        fcntl.flock(another, fcntl.LOCK_EX)
        another.write(b'{"id": "fir')
        sending = asyncio.create_task(FileChannel(path).send("second", notice_of()))
        done, _ = await asyncio.wait({sending}, timeout=0.2)
        assert not done
        another.write(b'st"}\n')
    await sending
    assert ids(path) == ["first", "second"]


async def test_lock_of_a_stopped_process_fails_a_line_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is blocked for the length of the stop: no thread, no other channel, not the end of the process."""
    monkeypatch.setattr(channels, "LOCK_S_MAX", 0.05)
    path = tmp_path / "papers.jsonl"
    channel = FileChannel(path)
    threads = threading.active_count()
    with path.open("ab") as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        with pytest.raises(NotSent, match="another process has held the lock"):
            await channel.send("a", notice_of())
    assert threading.active_count() == threads
    await channel.send("a", notice_of())
    assert ids(path) == ["a"]


async def test_other_lines_in_progress_hold_no_lock_meanwhile(tmp_path: Path) -> None:
    """A process that stops at an edge of one delivery must not stop with the lock for another one."""
    path = tmp_path / "papers.jsonl"
    channel = FileChannel(path)
    sending = [asyncio.create_task(channel.send(f"line-{i}", notice_of())) for i in range(20)]
    while not all(each.done() for each in sending):
        await asyncio.sleep(0)
        with path.open("ab") as another:
            fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert sorted(ids(path)) == sorted(f"line-{i}" for i in range(20))
