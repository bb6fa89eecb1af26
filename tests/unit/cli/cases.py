"""For each verb: its words, and what the gateway answers. Their output is in golden/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

AT = "2026-03-17T18:56:43.163+00:00"
KEEPER = {
    "scope": "agent",
    "name": "keeper",
    "on": True,
    "by": "ada",
    "at": AT,
    "reason": "smoke",
    "sequence": 7,
}
HOLD = {"by": "kill_switch", "of": "agent", "who": "ada", "since": AT, "until": None, "why": "smoke"}
LIMIT = {"by": "rate_limit", "of": "agent", "who": "", "since": AT, "until": AT, "why": "turns_per_hour"}
ANCHOR: dict[str, Any] = {
    "run_id": 15, "status": "idle", "last_run_timestamp": AT, "last_run_id": 7, "last_run_outcome": "success",
    "inputs_through": 99, "objectives": ["500 an hour", "no loss"], "constraints": [], "turn": None,
    "facts": {"workers_dead": None, "demand_queued": True, "tasks_queued": 0}, "fences": [{"run": 15, "at": None}],
}  # fmt: skip
SESSION = {"name": "fleet", "agent": "keeper", "status": "idle", "run_count": 7, "last_run_outcome": "success",
           "last_run_timestamp": AT, "next_check_at": AT, "held": [HOLD, LIMIT], "anchor": ANCHOR, "pending": 3,
           "emergency": {"kind": "workers-dead", "what": "all workers are dead", "since": AT, "last_seen_at": AT}}  # fmt: skip
RECEIPT = {"input_id": "in_1", "session": "fleet", "sequence": 41, "accepted_at": AT, "replayed": False,
           "session_status": "paused", "kill_switches": [KEEPER]}  # fmt: skip
CONTROL: dict[str, Any] = {
    "control_id": "c-1", "session": "fleet", "kind": "paused", "sequence": 50, "by": "ada", "replayed": False,
    "session_status": "paused", "more": {}, "never_start": [], "too_late": [], "canary": None,
}  # fmt: skip
LATE = {"call": "fleet/3.1.2", "tool": "launch", "note": "it may have run"}
DIRECTIVES = {**CONTROL, "kind": "directives"}
EFFECT: dict[str, Any] = {
    "call": "fleet/15.2.1", "tool": "launch_instances", "state": "unknown", "attempts": 2, "owner": "executor-1",
    "decided_at": AT, "ended_at": None, "blocks": "fleet", "error": "timeout", "arguments": {"count": 2},
}  # fmt: skip
SCHEDULE: dict[str, Any] = {
    "name": "morning", "session": "fleet", "cron": "30 2 * * *", "zone": "Europe/Berlin", "text": "count the fleet",
    "missed": "one", "overlap": "skip", "state": "active", "by": "ada", "reason": "", "at": AT, "sequence": 7,
    "counts": {"made": 2, "missed": 1, "skipped": 0}, "next": [{"slot": "x", "at": "2026-03-29T03:00:00+02:00"}],
    "owed": {"slot": "x", "at": "2026-03-28T02:30:00+01:00", "missed": 2},
}  # fmt: skip
LETTER = {"id": "observer-events-7", "service": "observer", "state": "open", "tries": 8, "session": None, "last_at": AT,
          "message": {"stream": "EVENTS", "sequence": 7}, "error": {"code": "damaged", "text": "not a record"}}  # fmt: skip
MODEL = {
    "name": "small", "model": "qwen3:8b", "endpoint": "http://h/v1", "profile": "ollama", "counter": "o200k_base × 1.4",
    "correction": {"ratio": 1.25, "excess": 40, "reports": 3}, "last_report": {"counted": 100, "reported": 120},
    "failures": 2, "asked_again_at": AT, "fault": {"code": "model_unavailable", "why": "it is away"}, "agents": ["keeper"],
}  # fmt: skip
DAY = {"day": "2026-03-17", "calls": 2, "prompt": 220, "completion": 15, "estimated": 70, "cost": 0.375}
FINDING: dict[str, Any] = {
    "id": "unreadable:7:ab", "sequence": 7, "through": 7, "register": "p.log", "trouble": "unreadable",
    "what": "the digest does not fit", "consequence": "a step is unknown", "accepted_at": None, "meaning": "it is skipped",
}  # fmt: skip
FOUND = {"session": "fleet", "whole": False, "runs": False, "status": "quarantined", "records": 76, "first": 1, "last": 80,
         "through": 90, "findings": [FINDING], "repairs": [{"sequence": 99, "at": AT, "by": "ann", "note": "disk"}]}  # fmt: skip
PLAN = {"session": "fleet", "plan": "ab", "behind": 90, "status": "quarantined", "restarts": True, "ends_turn": "turn_1",
        "run_id": 7, "anchor_of": 88, "unclear": ["fleet/7.1.1"], "remedies": [FINDING]}  # fmt: skip
LOSS: dict[str, Any] = {
    "held": True, "plan": "ab", "accepted": None, "sessions": [{"session": "fleet", "workspace": "default"}],
    "sessions_gone": [{"session": "night", "workspace": "default"}],
    "gaps": [{"first": 5, "through": 9, "found_by": "memory", "end_known": False, "unlisted": 2, "records": [
        {"sequence": 5, "workspace": "default", "session": "fleet", "register": "p.log",
         "command": {"tool": "launch", "resource": "yard"}}]}],
}  # fmt: skip
DECIDED = {"calls": [{"tool": "launch", "arguments": {"count": 2}}], "text": "two more"}
STEPS = [{"step": 1, "model": "small", "same": False, "why_not": "the template changed", "decided": DECIDED,
          "other": {"model": "rules", "calls": [], "text": ""}}]  # fmt: skip
BLOCK = {"name": "objectives", "tokens": 12, "left_out": None, "text": "line 1\nline 2"}
RESET = {"kept": {"objectives": ["a"], "constraints": [], "critical": ["b", "c"], "run_count": 7},
         "archived": {"turns": 3}, "cancelled_turn": "turn_8", "confirmation": "abc",
         "disposed": {"count": 1, "inputs": [{"kind": "message", "input_id": "in_1", "text": "hello"}]}}  # fmt: skip
WAKES = [
    {"sequence": 1, "accepted_at": AT, "priority": 0, "kind": "tick", "type": "tick", "disposition": "pending"},
    {"sequence": 2, "accepted_at": AT, "priority": 1, "kind": "tick", "type": "check", "disposition": "taken", "run_id": 3},
    {"sequence": 3, "accepted_at": AT, "kind": "event", "source": "fleet", "type": "instance.dead", "text": "w-7"},
    {"sequence": 4, "accepted_at": AT, "kind": "tick", "source": "schedule", "type": "morning", "text": "07:30 UTC"},
    {"sequence": 5, "accepted_at": AT, "kind": "control", "source": "", "type": "paused", "text": "it rains"},
    {"sequence": 6, "accepted_at": AT, "kind": "message", "source": "", "type": "", "text": "more comes at noon"},
    {"sequence": 7, "accepted_at": AT, "kind": "canary", "text": ""},
    {"sequence": 8, "accepted_at": AT, "kind": "control", "text": ""},
    {"sequence": 9, "accepted_at": AT, "kind": "tick", "text": ""},
]  # fmt: skip
TIMELINE = [
    {
        "sequence": 9,
        "at": AT,
        "who": f"planner-1:{'0a' * 16}",
        "what": "turn 2 ended: success",
        "why": "done",
        "said": "w-7 is well.",
    },
    {
        "sequence": 8,
        "at": AT,
        "what": "step 1: fire()",
        "call": "fleet/3.1.1",
        "why": "no worker runs",
        "in_prompt": "skipped",
        "facts": {"tasks_queued": 5, "fleet_limit": 10, "workers_alive": None},
    },
    {"sequence": 7, "at": AT, "what": "event fleet.instance.dead (P0)", "data": 'instance="i-3"'},
    {
        "sequence": 6,
        "at": AT,
        "what": "session resumed",
        "changes": {"status": {"from": "paused", "to": "idle"}, "next_check_at": {"from": None, "to": AT}},
    },
]
CHANGE = {"sequence": 3, "kind": "acquired", "at": AT, "by": "planner-1", "reason": "a tick",
          "changes": {"run_id": {"from": 0, "to": 1}, "objectives": {"from": [], "to": ["no loss"]}}}  # fmt: skip
DELIVERY = {"delivery_id": "d-1", "session": "fleet", "channel": "log", "state": "sent", "claims": 1, "last_at": AT,
            "title": "turn ended"}  # fmt: skip
LABELLED: list[dict[str, Any]] = [
    {"text": "CRITICAL: never four", "by": "ada", "at": AT, "sequence": 9, "in_prompt": True},
    {"text": "CRITICAL: be quick", "by": "", "at": AT, "sequence": 12, "in_prompt": False},
]
CONVERSATION: list[dict[str, Any]] = [
    {"at": AT, "role": "assistant", "run_id": 15, "text": "w-7 is well.\nIt runs since noon."},
    {"at": AT, "role": "user", "run_id": 15, "by": "ada", "text": "is w-7 well?", "in_prompt": "shortened"},
    {"at": AT, "role": "user", "run_id": None, "text": "and w-8?"},
]  # fmt: skip
AGENT = {
    "name": "keeper",
    "version": 3,
    "pack": "fleet",
    "model": "default",
    "heartbeat_s": 60,
    "description": "keeps",
}
PATH = "/api/sessions/fleet"


def page(*rows: Mapping[str, Any]) -> dict[str, Any]:
    return {"data": list(rows), "next": None}


@dataclass(frozen=True)
class Case:
    """A verb's words, the gateway's answers by "METHOD /path", and the exit code."""

    words: str
    answers: Mapping[str, Any] = field(default_factory=dict)
    code: int = 0


CASES = (
    Case("sessions list", {"GET /api/sessions": page(SESSION)}),
    Case("sessions create night --agent keeper", {"POST /api/sessions": {"name": "night", "agent": "keeper"}}),
    Case("show fleet", {f"GET {PATH}": SESSION}),
    Case("anchor fleet", {f"GET {PATH}/anchor": ANCHOR}),
    Case("anchor fleet --history", {f"GET {PATH}/anchor": page(CHANGE)}),
    Case("timeline fleet", {f"GET {PATH}/timeline": page(*TIMELINE)}),
    Case("wakes list fleet", {f"GET {PATH}/wakes": page(*reversed(WAKES)), "GET /api/schedules": page(SCHEDULE)}),
    Case("wakes clear fleet", {f"POST {PATH}/wakes/clear": {**CONTROL, "kind": "wakes_cleared",
                                                            "more": {"superseded": {"count": 4}}}}),
    Case("say fleet hello", {f"POST {PATH}/inputs": RECEIPT}),
    Case("conversation fleet", {f"GET {PATH}/conversation": page(*CONVERSATION)}),
    Case("trigger fleet --reason smoke", {f"POST {PATH}/trigger": {**RECEIPT, "session_status": "quarantined"}}),
    Case("pause fleet --reason rain", {f"POST {PATH}/pause": {**CONTROL, "replayed": True}}),
    Case("resume fleet", {f"POST {PATH}/resume": {**CONTROL, "kind": "resumed", "kill_switches": [KEEPER]}}),
    Case("cancel fleet 3", {f"POST {PATH}/cancel": {**CONTROL, "kind": "cancelled", "never_start": ["fleet/3.1.1"],
                                                    "too_late": [LATE]}}),
    Case("steer fleet 3 slower", {f"POST {PATH}/steer": {**CONTROL, "kind": "steered"}}),
    Case("delete fleet --yes", {f"POST {PATH}/delete": {**CONTROL, "kind": "deleted", "session_status": "deleted"}}),
    Case("objective list fleet", {f"GET {PATH}/anchor": ANCHOR}),
    Case("critical list fleet", {f"GET {PATH}/critical": {"lines": LABELLED}}),
    Case("critical remove fleet 1 --reason old", {f"GET {PATH}/critical": {"lines": LABELLED},
                                                  f"POST {PATH}/critical": {**DIRECTIVES, "more": {"which": "critical"}}}),
    Case("critical replace fleet 1 CRITICAL:x", {f"GET {PATH}/critical": {"lines": LABELLED},
                                                 f"POST {PATH}/critical": {**DIRECTIVES, "more": {"which": "critical"}}}),
    Case("objective set fleet a b", {f"POST {PATH}/objectives": {**DIRECTIVES, "more": {"which": "objectives"}}}),
    Case("objective add fleet a", {f"POST {PATH}/objectives": {**DIRECTIVES, "more": {"which": "objectives"}}}),
    Case("objective remove fleet 2", {f"GET {PATH}/anchor": ANCHOR, f"POST {PATH}/objectives": DIRECTIVES}),
    Case("constraint list fleet", {f"GET {PATH}/anchor": ANCHOR}),
    Case("constraint set fleet", {f"POST {PATH}/constraints": {**DIRECTIVES, "more": {"which": "constraints"}}}),
    Case("constraint add fleet a", {f"POST {PATH}/constraints": {**DIRECTIVES, "more": {"which": "constraints"},
                                                                 "notes": ["told to the model, not enforced"]}}),
    Case("constraint add fleet a --rule true", {f"POST {PATH}/constraints": {**DIRECTIVES, "more": {"which": "constraints"}}}),
    Case("constraint remove fleet a", {f"POST {PATH}/constraints": DIRECTIVES}),
    Case("reset fleet --dry-run", {f"GET {PATH}/reset": RESET}),
    Case("reset fleet --yes", {f"POST {PATH}/reset": {**CONTROL, "kind": "reset", "session_status": "idle",
                                                      "more": {"archived": {"turns": 3}, "superseded": {"count": 2}}},
                               f"GET {PATH}/anchor": ANCHOR}),
    Case("undo-reset fleet", {f"POST {PATH}/undo-reset": {**CONTROL, "kind": "reset_undone"}}),
    Case("end-emergency fleet --reason sold", {f"POST {PATH}/end-emergency": {**CONTROL, "kind": "emergency_ended"}}),
    Case("kill-switch list", {"GET /api/kill-switches": page(KEEPER)}),
    Case("kill-switch on --agent keeper", {"POST /api/kill-switches": KEEPER}),
    Case("kill-switch on --mesh", {"POST /api/kill-switches": {**KEEPER, "scope": "mesh", "name": None}}),
    Case("kill-switch off --workspace",
         {"POST /api/kill-switches": {**KEEPER, "scope": "workspace", "on": False, "name": None}}),
    Case("schedule list", {"GET /api/schedules": page(SCHEDULE, {**SCHEDULE, "state": "paused"})}),
    Case("schedule show morning", {"GET /api/schedules/morning": SCHEDULE}),
    Case("schedule create morning --session fleet --cron @daily", {"POST /api/schedules": {**SCHEDULE, "owed": None}}),
    Case("schedule pause morning", {"POST /api/schedules/morning/pause": {**SCHEDULE, "state": "paused"}}),
    Case("schedule resume morning", {"POST /api/schedules/morning/resume": {**SCHEDULE, "replayed": True}}),
    Case("schedule delete morning", {"DELETE /api/schedules/morning": SCHEDULE}),
    Case("agents list", {"GET /api/agents": page(AGENT)}),
    Case("agents show keeper@3", {"GET /api/agents/keeper@3": AGENT}),
    Case("agents apply agent.toml", {"PUT /api/agents/keeper": AGENT}),
    Case("context fleet --full", {f"GET {PATH}/context": {
        "run_id": 8, "session": "fleet", "tokens": 900, "budget": 8000, "model": "small", "template": "v3",
        "rung": "no_tools", "first": "a summary", "blocks": [BLOCK]}}),
    Case("costs fleet", {f"GET {PATH}": {"usage": {"ever": {**DAY, "calls": 9}, "days": [DAY]}},
                         f"GET {PATH}/turns": page(
                             {"run_id": 7, "outcome": "success", "steps_count": 1,
                              "usage": {"calls": 1, "prompt": 50, "completion": 3}},
                             {"run_id": 6, "outcome": "success", "steps_count": 3, "usage": {}})}),
    Case("replay fleet --turn 7", {f"POST {PATH}/replay": {"same": False, "steps": STEPS}}, 1),
    Case("effects list", {"GET /api/effects": page(EFFECT)}),
    Case("effects show fleet/15.2.1", {"GET /api/effects": page(EFFECT)}),
    Case("effects resolve fleet/15.2.1 done", {"POST /api/effects/resolve": {
        "call": "fleet/15.2.1", "verdict": "done", "by": "ada", "sequence": 77, "replayed": True}}),
    Case("deliveries list", {"GET /api/deliveries": page(DELIVERY)}),
    Case("publish fleet instance.dead", {"POST /api/events": {"id": "x", "sequence": 5, "duplicate": True,
                                                              "kill_switches": [{**KEEPER, "scope": "workspace",
                                                                                 "name": None}]}}),
    Case("models list", {"GET /api/models": page(MODEL, {"name": "large", "agents": ["a", "b"], "problem": "unknown"})}),
    Case("journal verify fleet", {f"GET {PATH}/verify": FOUND}, 1),
    Case("repair fleet --yes", {f"GET {PATH}/repair": PLAN, f"POST {PATH}/repair": {"by": "ada", "sequence": 92}}),
    Case("journal accept --yes", {"GET /api/journal": LOSS,
                                  "POST /api/journal/accept": {"by": "ada", "sequence": 92, "left": 0}}),
    Case("dead-letters list", {"GET /api/dead-letters": page(LETTER)}),
    Case("dead-letters show observer-events-7", {"GET /api/dead-letters/observer-events-7": LETTER}),
    Case("dead-letters retry observer-events-7", {"POST /api/dead-letters/observer-events-7/retry": LETTER}),
    Case("dead-letters drop observer-events-7", {"POST /api/dead-letters/observer-events-7/drop": LETTER}),
)  # fmt: skip

OTHERS = {
    "tail": "test_reading.py", "logs": "test_logs.py", "config": "test_config.py", "models probe": "test_model_probe.py",
    "init": "test_provision.py", "credentials": "test_provision.py", "doctor": "test_doctor.py", "status": "test_heard.py",
    "version": "test_output.py", "up": "../../integration/mesh", "down": "../../integration/mesh",
    "scale": "../../integration/mesh", "serve": "../../integration/mesh", "fleet status": "../../integration/mesh",
    "fleet kill": "../../integration/fleet", "fleet jobs add": "../../integration/mesh", "demo": "../../e2e",
    "crash-test": "../../chaos",
}  # fmt: skip
"""The verbs without a gateway's answer to render, and where they are tested."""
