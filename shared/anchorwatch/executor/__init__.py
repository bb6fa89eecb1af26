"""The executor: runs the decided commands of a pool, each effect at most once.

Two services run pools, and no service may import another, so the executor is here: the service `executor` runs the pools that
its settings name, and `memory` runs the pool `memory`.

- `pipeline`: one command, judge → claim → fence → run → record. Start reading here.
- `pool`: takes commands from the pool's consumer, and hands each to the pipeline.
- `message`: what the messages of a pool's consumer mean, and which of them are delivered for the first time.
- `job`: a command at work.
- `admission`: the policy's questions, and where their answers come from; `schema`: arguments against the tool's JSON Schema.
- `attempts`: runs the tool, as often as its effect class allows.
- `recorder`: writes claims, outcomes and artifacts.
- `dead_letters`: the outcome of a command that cannot be handled.
"""

from anchorwatch.executor.pool import PoolRunner

__all__ = ["PoolRunner"]
