"""Whether a session's journal is whole, and what is done when it is not.

- `findings`: what can be wrong with a record, and what follows from it.
- `families`: the records of each command, one behind the other.
- `anchors`: what may change from one anchor to the next.
- `reading`: one record by itself. `examine`: every record of a session, read and folded with whatever can be read. Pure.
- `report`: what an examination came to. `verify`: examine a session in the journal.
- `plan`: from what was found to what a repair would do, and what it means. Pure. `repair`: a repair in the journal.
"""
