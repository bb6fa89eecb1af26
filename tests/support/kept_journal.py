"""A journal of an earlier release, stored as text, one record a line.

The first line names the release, the stream, and the agent of its sessions. The bytes of its artifacts are not stored.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from anchorwatch.bus.port import Stored
from anchorwatch.testing.bus import SimServer

FIRST_RELEASE = Path(__file__).parents[1] / "fixtures" / "first_release_journal.jsonl"


@dataclass(frozen=True)
class KeptJournal:
    """The records of a whole stream, in order."""

    release: str
    stream: str
    agent: str
    messages: tuple[Stored, ...]

    def of(self, session: str) -> list[Stored]:
        """The records of one session of workspace ``default``."""
        return [each for each in self.messages if each.subject.split(".")[4] == session]

    def restore(self, server: SimServer) -> None:
        """Put the records into the server's empty stream, and set its clock after the last one."""
        for stored in self.messages:
            server.stream(self.stream).restore(stored)
        server.step_clock((self.messages[-1].time_ms + 1_000 - server.now_ms()) / 1000)


def read_kept(path: Path = FIRST_RELEASE) -> KeptJournal:
    """Read the journal from a file."""
    head, *lines = map(json.loads, path.read_text().splitlines())
    messages = tuple(
        Stored(line["subject"], line["sequence"], line["time_ms"], base64.b64decode(line["payload"]))
        for line in lines
    )
    return KeptJournal(head["release"], head["stream"], head["agent"], messages)
