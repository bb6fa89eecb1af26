"""The file channel: lines of several notifiers in one file."""

from __future__ import annotations

import asyncio
import fcntl
import json
from pathlib import Path

from anchorwatch.core.names import SessionRef
from anchorwatch_notifier.channels import FileChannel
from anchorwatch_notifier.notices import Notice


async def test_a_line_that_another_notifier_is_writing_is_not_taken_for_one_that_was_cut_short(
    tmp_path: Path,
) -> None:
    path = tmp_path / "papers.jsonl"
    notice = Notice(SessionRef("default", "fleet"), 9, 5, "d" * 64, ("turn_ended",), "info", "title")
    with path.open("ab", buffering=0) as another:
        fcntl.flock(another, fcntl.LOCK_EX)
        another.write(b'{"id": "fir')
        sending = asyncio.create_task(FileChannel(path).send("second", notice))
        done, _ = await asyncio.wait({sending}, timeout=0.2)
        assert not done
        another.write(b'st"}\n')
    await sending
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == ["first", "second"]
