"""The file channel: lines of several notifiers in one file."""

from __future__ import annotations

import asyncio
import fcntl
import json
from pathlib import Path

from anchorwatch.core.names import SessionRef
from anchorwatch_notifier.channels import FileChannel
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
