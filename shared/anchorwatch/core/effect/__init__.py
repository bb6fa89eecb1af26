"""The effect machine: one command's life, from its gate and claim to its one outcome.

- `state`: `EffectState`, folded from the command's family ``fx.<pool>.<run>.<step>.<n>.>``.
- `intent`: the key that names an effect to its provider.
- `blocking`: when what is not known of one effect keeps another command from running.
- `resolve`: settling by hand what nobody can tell.
- `decide`: what an executor does next with a command that it was handed, and what it may conclude from a claim
without outcome.
"""

from anchorwatch.core.effect.decide import next_action
from anchorwatch.core.effect.state import EffectState, fold_effect

__all__ = ["EffectState", "fold_effect", "next_action"]
