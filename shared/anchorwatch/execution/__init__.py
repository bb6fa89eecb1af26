"""Runs decided commands: whoever executes a pool does it with this.

- `pool`: takes commands from the pool's consumer and hands each to a `Runner`.
- `runner`: one command, from policy over claim and fence to its one outcome.
- `admission`: may it run? The policy's questions and where their answers come from.
- `leave`: may it run, as far as the journal knows? The fence, and what is open on its resource.
- `attempts`: runs the tool, as often as its effect class allows.
- `results`: what a tool gave back, in the form of a record.
"""

from anchorwatch.execution.pool import PoolRunner

__all__ = ["PoolRunner"]
