"""The deterministic model: the pack's decisions without a language model. Pure.

It decides one step at a time, as a language model does: from the calls of this turn and their results, it makes one more
call or ends the turn with a sentence. It makes each call once a turn, whatever the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from anchorwatch.packs import UNKNOWN, PastCall, ProposedCall, Situation, StepDecision

from anchorwatch_fleet.changes import backlog_seconds
from anchorwatch_fleet.config import FleetConfig
from anchorwatch_fleet.instances import instance_from_json
from anchorwatch_fleet.launches import launches_in_vain
from anchorwatch_fleet.policy import emergency, unserved

CHECK_AFTER_CHANGE_MIN = 1.0
CHECK_WHILE_BLIND_MIN = 1.0
TOLD_AGAIN_FACTOR = 4
DONE = "succeeded"


@dataclass(frozen=True, slots=True)
class _Case:
    """A situation, with its relevant values read once."""

    situation: Situation
    config: FleetConfig

    @property
    def past(self) -> list[PastCall]:
        return [call for step in self.situation.steps for call in step]

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.situation.observation.facts

    def number(self, name: str) -> int:
        """A known count of the observation."""
        return int(self.facts[name] or 0)

    @property
    def room(self) -> int:
        """How many more instances may live."""
        return self.config.fleet_limit - self.number("instances_live")

    @property
    def useful(self) -> int:
        """How many instances the queued tasks are worth."""
        return -(-self.number("tasks_queued") // self.config.tasks_per_instance)

    def known(self, *names: str) -> bool:
        return all(self.facts.get(name) is not UNKNOWN for name in names)

    def asked(self, tool: str) -> bool:
        return any(call.name == tool for call in self.past)

    @property
    def summary(self) -> str:
        """The fleet in one sentence, after the emergency, if there is one."""
        seen, known = emergency(self.facts), self.situation.emergency
        if seen:
            return f"EMERGENCY when seen: {seen.what}. {summary(self.facts)}"
        return (
            f"EMERGENCY: {known}. {summary(self.facts)}" if known and seen is UNKNOWN else summary(self.facts)
        )


def rules(situation: Situation, config: FleetConfig) -> StepDecision:
    """The next step of the turn."""
    case = _Case(situation, config)
    if case.past:
        return _after(case)
    for decide in (_blind, _emergency, _hung, _too_few, _surplus):
        decision = decide(case)
        if decision is not None:
            return decision
    return StepDecision(text=f"Nothing to do. {case.summary}")


# ---------------------------------------------------------------- what to do first


def _blind(case: _Case) -> StepDecision | None:
    """A relevant fact is unknown: change nothing, check again soon, and notify people if it lasts."""
    if case.known("tasks_queued", "workers_alive", "workers_dead", "instances_live"):
        return None
    if _time_to_tell(case):
        text = (
            f"Since {_minutes_blind(case):.0f} minutes this is not known: {', '.join(case.situation.observation.unknown)}. "
            f"I start and stop nothing until it is known again. {case.summary}"
        )
        return _notify(
            "The fleet cannot be seen", text, "critical" if case.situation.emergency else "warning"
        )
    return _check(CHECK_WHILE_BLIND_MIN, "whether the silent source answers again")


def _minutes_blind(case: _Case) -> float:
    since_ms = case.situation.facts.get("blind_since_ms") or case.situation.observation.at_ms
    return (case.situation.observation.at_ms - int(since_ms)) / 60_000


def _time_to_tell(case: _Case) -> bool:
    """Whether to notify people in this turn: after ``blind_s``, then each time it has lasted four times as long.

    The window is as wide as the heartbeat, so that some turn falls into it, and rarely more than one.
    """
    blind_s = _minutes_blind(case) * 60
    mark_s = case.config.blind_s
    while mark_s * TOLD_AGAIN_FACTOR <= blind_s:
        mark_s *= TOLD_AGAIN_FACTOR
    return mark_s <= blind_s < mark_s + case.situation.heartbeat_s


def _emergency(case: _Case) -> StepDecision | None:
    """Tasks are queued, and no worker is running or loading."""
    if not unserved(case.facts) or case.room <= 0:
        return None
    priority = "emergency" if case.facts["workers_dead"] else "normal"
    return _launch(case, min(case.useful, case.room), priority)


def _too_few(case: _Case) -> StepDecision | None:
    """Fewer than are kept ready, or too few for what is queued."""
    working = case.number("workers_alive") + case.number("workers_loading")
    wanted = case.config.fleet_min - working
    if wanted <= 0 and _backlogged(case):
        wanted = case.useful - working
    wanted = min(wanted, case.room)
    return _launch(case, wanted, "normal") if wanted > 0 else None


def _backlogged(case: _Case) -> bool:
    backlog_s = backlog_seconds(case.facts)
    return backlog_s is not None and backlog_s > case.config.backlog_s_max


def _hung(case: _Case) -> StepDecision | None:
    """Restart hung instances, with one call for each."""
    calls = tuple(
        ProposedCall("restart_instance", {"instance_id": each["id"]})
        for each in _instances(case)
        if each["state"] == "hung"
    )
    return StepDecision(text=f"{len(calls)} hung: restart.", calls=calls) if calls else None


def _surplus(case: _Case) -> StepDecision | None:
    """Nothing was queued for long: stop surplus instances, one at a time, and keep at least one."""
    idle_since_ms = case.situation.facts.get("idle_since_ms")
    if (
        not idle_since_ms
        or case.facts.get("tasks_queued") != 0
        or case.facts.get("demand_active") is not False
    ):
        return None
    idle_s = (case.situation.observation.at_ms - int(idle_since_ms)) / 1000
    running = [each for each in _instances(case) if each["state"] == "running"]
    if idle_s < case.config.idle_s or len(running) <= max(1, case.config.fleet_min):
        return None
    youngest = max(running, key=lambda each: int(each["since_ms"]))
    return StepDecision(
        text=f"Nothing was queued for {idle_s / 60:.0f} minutes: one instance less.",
        calls=(ProposedCall("stop_instance", {"instance_id": youngest["id"]}),),
    )


def _instances(case: _Case) -> Iterator[Mapping[str, Any]]:
    yield from cast("list[Mapping[str, Any]]", case.situation.observation.data.get("instances") or [])


# ---------------------------------------------------------------- after a call of this turn


def _after(case: _Case) -> StepDecision:
    """After a call of this turn: handle its result, and end the turn."""
    changed = [
        call for call in case.past if call.name in ("launch_instances", "restart_instance", "stop_instance")
    ]
    troubles = [call for call in changed if call.state != DONE]
    if troubles and not case.asked("notify_human"):
        worst = troubles[0]
        text = f"{_told(worst)} I do not try again in this turn. {case.summary}"
        severity = "critical" if case.situation.emergency or emergency(case.facts) else "warning"
        return _notify(f"{worst.name} {_state(worst)}", text, severity)
    told_blind = not changed and case.asked("notify_human")
    if (changed or told_blind) and not case.asked("schedule_next_check"):
        if told_blind:
            return _check(CHECK_WHILE_BLIND_MIN, "whether the silent source answers again")
        return _check(CHECK_AFTER_CHANGE_MIN, "whether the fleet is as it should be")
    return StepDecision(text=" ".join([*(_told(call) for call in case.past), case.summary]))


def _told(call: PastCall) -> str:
    """The result of a call, as a sentence."""
    words = call.text.strip().rstrip(".")
    return (
        f"{words}."
        if call.state == DONE and words
        else f"{call.name} {_state(call)}: {words or 'no reason given'}."
    )


def _state(call: PastCall) -> str:
    return {"unknown": "has an unknown outcome", "refused": "was refused", "rejected": "was rejected"}.get(
        call.state, call.state
    )


# ---------------------------------------------------------------- texts


def summary(facts: Mapping[str, Any]) -> str:
    """The fleet in one sentence, with unknown values marked."""

    def say(name: str) -> str:
        value = facts.get(name)
        return "unknown" if value is None else str(value)

    return (
        f"{say('tasks_queued')} tasks queued, {say('workers_alive')} workers running, {say('workers_loading')} loading, "
        f"{say('fleet_capacity_ph')} proofs/h."
    )


def _launch(case: _Case, count: int, priority: str) -> StepDecision:
    """The launch; while it must wait, a check as soon as it may follow."""
    if case.facts["launch_backoff"]:
        instances = [instance_from_json(each) for each in _instances(case)]
        at_ms = case.situation.observation.at_ms
        wait_ms = launches_in_vain(instances, at_ms).next_at_ms - at_ms
        return _check(max(wait_ms, 0) / 60_000, "whether the next launch works: the last ones did not")
    args = {"count": count, "launch_priority": priority}
    return StepDecision(text=f"Launch {count} ({priority}).", calls=(ProposedCall("launch_instances", args),))


def _check(minutes: float, reason: str) -> StepDecision:
    return StepDecision(
        calls=(ProposedCall("schedule_next_check", {"when": f"{minutes:g} min", "reason": reason}),)
    )


def _notify(title: str, text: str, severity: str) -> StepDecision:
    args = {"title": title, "text": text, "severity": severity}
    return StepDecision(calls=(ProposedCall("notify_human", args),))
