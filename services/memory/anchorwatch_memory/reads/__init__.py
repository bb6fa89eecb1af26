"""Queries on the projections: functions of a connection and the parameters of a request, each on one snapshot.

`lists`, `turns` and `memories` answer; `params` reads parameters, `pages` cuts lists into pages, `show` forms the rows, and
`prompt_marks` says how the last request showed a turn.
"""
