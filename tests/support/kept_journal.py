"""The kept journal: every kind of record in the first format, as text, one record a line.

Every later release must read it. The first line names the release, the stream, and the agent of the sessions. The bytes of
artifacts are not kept.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from anchorwatch.bus.port import Stored
from anchorwatch.testing.bus import SimServer

FORMAT_1 = Path(__file__).parents[1] / "fixtures" / "journal_format_1.jsonl"


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


def read_kept(path: Path = FORMAT_1) -> KeptJournal:
    """The journal in a file."""
    head, *lines = map(json.loads, path.read_text().splitlines())
    messages = tuple(
        Stored(line["subject"], line["sequence"], line["time_ms"], base64.b64decode(line["payload"]))
        for line in lines
    )
    return KeptJournal(head["release"], head["stream"], head["agent"], messages)
