"""`make bench`: the durable turn, measured beside a floor that only passes messages. See docs/performance.md."""
