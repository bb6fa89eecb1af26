"""The session machine: one long-lived actor as a fold over its journal.

- `transitions`: the table of the machine; read it first.
- `state`: `SessionState`, with its `Turn`, `Step`s and `Call`s.
- `events`: one event for each journal record. `apply`: state + event -> state; it never refuses.
- `commands`: requests to the session. `decide`: state + command -> events; it may refuse. `controls` decides people's orders;
  `turn_end` sets what every end of a turn sets; `quarantine` rebuilds anchors after damage.
- `wakes`: when a session is due. `pacing`: its rate limits. `joining`: messages that join a running turn.
- `ledger`: the disposition of each wake-up, derived independently of the machine.
- `conversation`, `summary`, `outputs`, `critical`: how past turns are shown, and what is always kept.
- `preview`: the effect of a reset. `outcome`, `cycling`, `spending`: the result of a turn, repetition, and model usage.
"""

from anchorwatch.core.session.apply import apply, replay
from anchorwatch.core.session.state import SessionState

__all__ = ["SessionState", "apply", "replay"]
