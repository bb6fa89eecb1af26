"""The planner: decides. It turns wakes into turns, one at a time for each session, and commits what the model asks for.

- `main`: the service.
- `workers`, `mailbox`: the consumers, and one mailbox for each session; what arrives while a session is looked at waits there.
- `look`: what a planner does with a session: is it time, whose turn is it, what is next.
- `doubt`: a look that meets what it cannot read: quarantine.
- `thinker`: what a looker asks of whoever thinks.
- `think`: one step of a turn: observe, build the request, ask the model, commit.
- `prompt`: the request, from state to messages. Pure.
- `evidence`: may this planner take a turn over? Pure.
- `schedules`: when to look again, kept by the server in ``TICKS``.
- `timetable`: the schedules that people made; `clerk`: the messages about them.
- `sweep`: finds sessions that nobody is watching.
"""
