"""``anchorwatch demo``: the incident that motivated this project, on real processes, with its own checks.

- `run`: the verb
- `stage`: a separate mesh that leaves nothing
- `story`: the steps of the incident and what they observe; `killer`: kills processes
- `evidence`: all observations; `checks`: expected and seen; `report`: the outcome as text and data
"""

from anchorwatch.testing.demo.run import run

__all__ = ["run"]
