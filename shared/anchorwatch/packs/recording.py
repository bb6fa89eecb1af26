"""Records every tool call of a pack outside the journal, as independent evidence for tests.

The variable ``ANCHORWATCH_RECORD_CALLS`` names the file; without it nothing is recorded. It is not a setting, so no file can set
it by mistake. A line is on disk before the call runs, so every started call of a killed process is recorded.

The variable ``ANCHORWATCH_KILL_IN_CALLS`` names a directory: the process that first carries out a call of a tool kills itself
before anything learns of it, and leaves a file with the tool's name there. Without the directory, no process kills itself.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from anchorwatch.core.facts import Observation
from anchorwatch.packs.port import PackRuntime, Probed, Reconciled, ToolContext, ToolFailed, ToolResult

VARIABLE = "ANCHORWATCH_RECORD_CALLS"
KILL_VARIABLE = "ANCHORWATCH_KILL_IN_CALLS"

Moment = Literal["begun", "returned", "failed", "raised", "done", "not_done", "unknown"]
"""Of a run: begun, and how it ended. Of a question to the provider: what it said."""


@dataclass(frozen=True, slots=True)
class Note:
    """One line of the file. ``session`` is ``workspace/session``, ``call`` is ``run.step.n``; ``pid``: whose call it is."""

    moment: Moment
    tool: str
    effect_key: str
    session: str
    call: str
    pid: int


def recorded(runtime: PackRuntime, environment: Mapping[str, str]) -> PackRuntime:
    """The runtime, with its calls recorded if the environment requests it."""
    path = environment.get(VARIABLE, "")
    deaths = environment.get(KILL_VARIABLE, "")
    return Recording(runtime, Path(path), Path(deaths) if deaths else None) if path else runtime


def read_notes(path: Path) -> list[Note]:
    """All notes, oldest first. A torn line is skipped: its call had not started."""
    notes = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                notes.append(Note(**json.loads(line)))
            except (ValueError, TypeError):
                continue
    return notes


class Recording:
    """A runtime that records its calls. ``deaths``: the directory in which it marks the tools in whose call it died."""

    def __init__(self, runtime: PackRuntime, path: Path, deaths: Path | None = None) -> None:
        self._runtime = runtime
        self._path = path
        self._deaths = deaths

    async def observe(self) -> Observation:
        return await self._runtime.observe()

    def changes(self, before: Observation | None, now: Observation) -> Sequence[Probed]:
        return self._runtime.changes(before, now)

    async def run(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> ToolResult:
        self._note("begun", tool, context)
        try:
            result = await self._runtime.run(tool, args, context)
        except ToolFailed:
            self._note("failed", tool, context)
            raise
        except BaseException:
            self._die_once(tool)
            self._note("raised", tool, context)
            raise
        self._die_once(tool)
        self._note("returned", tool, context)
        return result

    async def reconcile(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> Reconciled:
        said = await self._runtime.reconcile(tool, args, context)
        self._note(said.state, tool, context)
        return said

    async def close(self) -> None:
        await self._runtime.close()

    def _die_once(self, tool: str) -> None:
        """Kill this process in the first call of a tool, of all processes."""
        if self._deaths is None:
            return
        try:
            os.close(os.open(self._deaths / tool, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except (FileExistsError, FileNotFoundError):
            return
        os.kill(os.getpid(), signal.SIGKILL)

    def _note(self, moment: Moment, tool: str, context: ToolContext) -> None:
        note = Note(moment, tool, context.effect_key, str(context.ref), str(context.call), os.getpid())
        # The newline first separates it from a torn line. Lines of several processes never mix: each is one short
        # write to a file that is opened for appending.
        line = b"\n" + json.dumps(asdict(note)).encode() + b"\n"
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line)
            os.fsync(file)
        finally:
            os.close(file)
