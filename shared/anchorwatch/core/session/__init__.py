"""The session machine: one long-lived actor as a fold over its journal.

- `state`: what a session is (`SessionState`, its `Turn`, `Step`s and `Call`s).
- `events`: what can happen to it; each event is one journal record.
- `apply`: state + event -> state. It may not refuse.
- `commands`: what can be asked of it. `decide`: state + command -> events; it may refuse. Of people's orders `controls` decides,
  and `rest` says what every end of a turn sets.
- `wakes`: when is a session due. `joining`: what joins a running turn. `ledger`: what became of each wake.
- `conversation`, `summary`, `outputs`, `critical`: what is shown of turns that are over, and what is never let go.
- `preview`: what a reset would do. `outcome`, `cycling`: what a turn has come to, and whether the session goes in circles.
"""

from anchorwatch.core.session.apply import apply, replay
from anchorwatch.core.session.state import SessionState

__all__ = ["SessionState", "apply", "replay"]
