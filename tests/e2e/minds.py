"""One model server for several sessions: an objective names the session in each request, and each has its own script."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from tests.support.model_server import Reply, text

Json = dict[str, Any]
Script = Sequence[Reply] | Callable[[], Reply]
NOTHING = "Nothing needs to be done."


def objective(session: str) -> str:
    """What a session's agent must have among its objectives."""
    return f"you are the session {session}."


class Minds:
    """Answers requests by session. Whoever has no script, or whose script is over, has nothing to do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scripts: dict[str, Script] = {}
        self._asked: dict[str, list[Json]] = {}

    def script(self, session: str, script: Script) -> None:
        """Give a session its answers: a list, one for each request, or a function that answers every one."""
        with self._lock:
            self._scripts[session] = script if callable(script) else list(script)
            self._asked[session] = []

    def asked(self, session: str) -> list[Json]:
        """The requests of a session since it got its script."""
        with self._lock:
            return list(self._asked.get(session, []))

    def __call__(self, request: Json) -> Reply:
        system = str(request["messages"][0]["content"])
        with self._lock:
            session = next((name for name in self._scripts if objective(name) in system), "")
            self._asked.setdefault(session, []).append(request)
            script = self._scripts.get(session, ())
            if callable(script):
                return script()
            number = len(self._asked[session])
            return script[number - 1] if number <= len(script) else text(NOTHING)
