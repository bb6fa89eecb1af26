from __future__ import annotations

from anchorwatch.core.facts import Observation
from anchorwatch_fleet.changes import NEWS_MS_MAX, changes

from tests.unit.fleet.sights import NOW_MS, sight, worker, workers

BACKLOG_S_MAX = 60.0


def events(before: Observation | None, now: Observation) -> list[tuple[str, str]]:
    return [(each.type, each.priority) for each in changes(before, now, BACKLOG_S_MAX)]


def test_dead_instance_is_one_event_of_the_highest_priority() -> None:
    now = sight([worker("w-1"), worker("w-2", "exited", age_s=1), worker("w-3", "exited", age_s=2)])

    events = changes(sight(workers(running=3)), now, BACKLOG_S_MAX)

    assert [(each.source, each.type, each.priority, each.data["instance"]) for each in events] == [
        ("fleet", "instance.dead", "P0", "w-2"),
        ("fleet", "instance.dead", "P0", "w-3"),
    ]


def test_death_has_one_event_id_for_all_observers() -> None:
    first, again = (
        changes(before, sight([worker("w-1", "exited")]), BACKLOG_S_MAX)[0] for before in (None, sight())
    )
    later = changes(None, sight([worker("w-1", "exited", age_s=1)]), BACKLOG_S_MAX)[0]

    assert first.event_id == again.event_id == f"dead-w-1-{NOW_MS - 60_000}"
    assert later.event_id != first.event_id


def test_death_during_a_silence_of_the_yard_is_reported_after_it() -> None:
    assert events(sight(None), sight([worker("w-1", "exited")])) == [("instance.dead", "P0")]


def test_old_or_known_death_is_not_an_event() -> None:
    dead = sight([worker("w-1", "exited")])
    old = sight([worker("w-1", "exited", age_s=NEWS_MS_MAX / 1000 + 1)])

    assert events(dead, dead) == []
    assert events(None, old) == []


def test_stopped_instance_is_not_a_death_but_a_hung_one_is_seen() -> None:
    assert events(sight(workers(running=1)), sight(workers(stopped=1))) == []
    assert events(sight(workers(running=1)), sight(workers(hung=1))) == [("instance.hung", "P1")]


def test_unserved_tasks_are_reported_once() -> None:
    waiting = sight(tasks=5)

    assert events(sight(), waiting) == [("queue.waiting", "P1")]
    assert events(None, waiting) == [("queue.waiting", "P1")]
    assert events(waiting, sight(tasks=9)) == []
    assert events(sight(), sight(workers(loading=1), tasks=5)) == []


def test_queue_that_cannot_be_seen_is_not_waiting() -> None:
    assert events(sight(), sight(tasks=None)) == [("source.unknown", "P1")]
    assert events(None, sight(None, tasks=5)) == []


def test_newly_silent_source_is_reported_but_an_old_one_is_not() -> None:
    assert events(sight(), sight(None, None)) == [("source.unknown", "P1"), ("source.unknown", "P1")]
    assert events(sight(None, None), sight(None, None)) == []
    assert events(None, sight(None, None)) == []


def test_backlog_is_reported_when_it_would_take_too_long() -> None:
    few, many = sight(workers(running=1), tasks=99), sight(workers(running=1), tasks=101)

    assert events(None, few) == []
    assert events(few, many) == [("queue.backlog", "P1")]
    assert events(many, sight(workers(running=1), tasks=150)) == []
