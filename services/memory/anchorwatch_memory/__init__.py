"""The memory service: projections of the journal in SQLite, answers to reads, and durable memory for agents.

- `main`: wires the service. `rpc`: answers ``aw.rpc.memory.<verb>``.
- `follow`: enters every journal record in order, once. `lost`: what the projections prove about a journal that lost its end.
- `projections`, `store`, `schema`: the SQLite file.
- `fold`: from one journal record to rows. `reads`: from rows to answers.
- `dead_letters`: records that a fault of this code kept out, and their retry.
- `tools`: the tools ``remember``, ``recall``, ``forget`` and ``read_result``.
"""
