"""The session machine: one long-lived actor as a fold over its journal.

- `state`: what a session is (`SessionState`, its `Turn`, `Step`s and `Call`s).
- `events`: what can happen to it; each event is one journal record.
- `apply`: state + event -> state. It may not refuse.
- `decide`: state + command -> events. It may refuse.
- `wakes`: when is a session due, and what became of each wake.
- `outcome`: what a turn has come to.
"""

from anchorwatch.core.session.apply import apply, replay
from anchorwatch.core.session.state import SessionState

__all__ = ["SessionState", "apply", "replay"]
