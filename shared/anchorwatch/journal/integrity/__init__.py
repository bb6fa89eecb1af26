"""Verification and repair of a session's journal.

- `findings`: the kinds of damage, and their consequences.
- `families`: the records of each command, in order.
- `anchors`: the valid changes between two anchors.
- `reading`: one record by itself. `examine`: every record of a session, and the fold of the readable ones. Pure.
- `losses`: the gaps of the journal, and the sessions that they may concern.
- `report`: the result of an examination. `verify`: examine a session in the journal.
- `plan`: from findings to a repair and its meaning. Pure. `repair`: carry a repair out.
- `accept`: accept the loss of the journal's end.
"""
