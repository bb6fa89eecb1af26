"""``anchorwatch crash-test``: kills the processes of a real mesh, at its durable edges and at random, and counts violations."""
