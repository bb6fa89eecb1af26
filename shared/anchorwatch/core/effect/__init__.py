"""The effect machine: one command's life, from its gate and claim to its one outcome.

- `state`: `EffectState`, folded from the command's family ``fx.<pool>.<run>.<step>.<n>.>``.
- `intent`: the key that names an effect to its provider.
- `blocking`: when an unknown effect blocks another command.
- `resolve`: settling an unknown effect by hand.
- `decide`: the executor's next move on a command, and what it may conclude from a claim without an outcome.
"""

from anchorwatch.core.effect.decide import next_action
from anchorwatch.core.effect.state import EffectState, fold_effect

__all__ = ["EffectState", "fold_effect", "next_action"]
