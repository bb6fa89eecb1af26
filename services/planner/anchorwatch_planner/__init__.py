"""The planner: turns wake-ups into turns, one at a time for each session, and commits what the model decides.

A wake-up's way through it: `workers` → `mailbox` → `turn` → `step`. Start reading with `turn`.

- `main`: the service and its parts.
- `workers`: the consumers of the journal and of the ticks.
- `mailbox`: one mailbox for each session; fair slots for passes.
- `turn`: one pass over a session: is a turn due, which planner runs it, what is its next step.
- `takeover`: the causes of a pass, and when a turn of another planner may be taken over. Pure.
- `sessions`: reads and writes the sessions, from cache where that is safe.
- `limits`: when a turn is due under its agent's limits.
- `step`: observes, calls the model, commits its decision.
- `fitting`: fits the request into its token budget.
- `decision`: which calls become commands, and when to check again. Pure.
- `runtimes`: what each agent runs with, and what is known of its models.
- `wakeups`: wake-up timers, kept by the server in ``TICKS``.
- `schedules`: the schedules that people made.
- `switches`: the kill switches that are on.
- `sweep`: passes over sessions that no message wakes.
- `failures`: the dead letters of sessions.
- `rpc`: previews and replays of requests, and the list of models.
"""
