"""``anchorwatch crash-test``: kills a real mesh, at its durable edges and at random, and counts what came of it."""
