"""``anchorwatch demo``: the incident that this project was born from, on real processes, checking itself.

- `running`: the verb
- `stage`: a mesh of its own, of which nothing is left
- `story`: what is done to the mesh, and noted on the way; `killing`: its tool
- `history`: the journal as a list of what happened; `evidence`: all that was seen
- `checks`: what was expected and what was seen; `report`: how it is told
"""

from anchorwatch.testing.demo.running import run

__all__ = ["run"]
