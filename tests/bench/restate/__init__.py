"""The same durable turn on Restate, beside the mesh in the same run. Nothing of Restate is part of this tree.

- `had`: how it is had, or why it cannot be.
- `worker`: the turn's two services, as its SDK has them.
- `scene`: its server, the workers, and the events that go in.
"""
