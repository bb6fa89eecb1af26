"""The journal: the only truth. Append to it under a fence, and fold it back into state.

- `commit`: one write or one atomic batch, until it is *committed*, *fenced*, or *unavailable*.
- `register`: compare-and-set, the one loop for every value that several processes change.
- `mapping`, `effect_mapping`, `snapshots`: events of the machines as records, and back.
- `sessions`: load a session; append planner events to it.
- `effects`: load a command's effect; append to its family. `late`: what came after another outcome.
- `inputs`: accept an input; first write wins, and gives the same receipt for ever.
- `artifacts`, `deliveries`: registers that are written once. `timeline`: records as sentences.
- `quarantine`: a session that cannot be read refuses to run. `integrity`: what is wrong with it, and its repair.
"""
