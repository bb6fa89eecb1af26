"""`journal verify`: what people see, and the exit code."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.cli.conftest import Run
from tests.unit.cli.gateways import Gateway

WHOLE: dict[str, Any] = {
    "session": "fleet",
    "whole": True,
    "runs": True,
    "status": "idle",
    "records": 76,
    "first": 1,
    "last": 80,
    "through": 90,
    "findings": [],
    "repairs": [],
}
FINDING = {
    "id": "unreadable:7:ab",
    "sequence": 7,
    "through": 7,
    "register": "p.log",
    "trouble": "unreadable",
    "what": "the digest of the record does not fit its bytes",
    "consequence": "a step is not known",
    "accepted_at": None,
}
REPAIR = {"sequence": 99, "at": "2026-03-17T18:56:43+00:00", "by": "ann", "note": "the disk", "accepted": 1}


def test_undamaged_session_is_reported_and_exits_0(run: Run, remote: Gateway) -> None:
    remote.answer("GET /api/sessions/fleet/verify", (200, WHOLE))
    ran = run("journal", "verify", "fleet")
    assert (ran.code, ran.out) == (0, "fleet: 76 records, whole\n")


def test_damage_is_reported_with_its_consequence_and_exits_1(run: Run, remote: Gateway) -> None:
    lost = {**FINDING, "sequence": 9, "through": 11, "register": "", "trouble": "lost", "what": "it is gone"}
    found = {**WHOLE, "whole": False, "runs": False, "status": "quarantined", "findings": [FINDING, lost]}
    remote.answer("GET /api/sessions/fleet/verify", (200, found))
    ran = run("journal", "verify", "fleet")
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert lines[0] == "sequence 7 (p.log): unreadable: the digest of the record does not fit its bytes"
    assert lines[1].strip() == "a step is not known"
    assert lines[2] == "sequences 9 to 11: lost: it is gone"
    assert "anchorwatch repair fleet" in lines[-1]


def test_damage_accepted_by_a_repair_is_reported_and_exits_0(run: Run, remote: Gateway) -> None:
    found = {**WHOLE, "findings": [{**FINDING, "accepted_at": 99}], "repairs": [REPAIR]}
    remote.answer("GET /api/sessions/fleet/verify", (200, found))
    ran = run("journal", "verify", "fleet")
    assert ran.code == 0
    assert "accepted by the repair at 99" in ran.out
    assert "repaired at 99 by ann" in ran.out
    assert ran.out.splitlines()[-1] == "fleet: 76 records, whole except for accepted damage"


def test_programs_get_the_whole_answer(run: Run, remote: Gateway) -> None:
    found = {**WHOLE, "whole": False, "findings": [FINDING]}
    remote.answer("GET /api/sessions/fleet/verify", (200, found))
    ran = run("journal", "verify", "fleet", "--json")
    assert (ran.code, json.loads(ran.out)) == (1, found)


PLAN: dict[str, Any] = {
    "session": "fleet",
    "plan": "ab" * 32,
    "behind": 90,
    "status": "quarantined",
    "restarts": True,
    "ends_turn": "turn_1",
    "run_id": 7,
    "fence": 8,
    "objectives": [],
    "constraints": [],
    "anchor_of": 88,
    "unclear": ["fleet/7.1.1"],
    "remedies": [{**FINDING, "meaning": "the conversation goes on without it"}],
}
DONE = {"session": "fleet", "plan": "ab" * 32, "sequence": 92, "by": "a person", "replayed": False}


def test_dry_run_shows_the_effects_of_a_repair_and_does_nothing(run: Run, remote: Gateway) -> None:
    remote.answer("GET /api/sessions/fleet/repair", (200, PLAN))
    ran = run("repair", "fleet", "--dry-run")
    assert ran.code == 0
    assert "sequence 7 (p.log): unreadable" in ran.out
    assert "the conversation goes on without it" in ran.out
    assert "turn 7 (turn_1) ends failed" in ran.out
    assert "anchorwatch effects fleet/7.1.1" in ran.out
    assert [asked.method for asked in remote.asked] == ["GET"]
    assert json.loads(run("repair", "fleet", "--dry-run", "--json").out) == PLAN


def test_repair_confirms_the_plan_that_was_shown(run: Run, remote: Gateway) -> None:
    remote.answer("GET /api/sessions/fleet/repair", (200, PLAN))
    remote.answer("POST /api/sessions/fleet/repair", (200, DONE))
    ran = run("repair", "fleet", "--yes", "--note", "the disk was replaced")
    assert ran.code == 0
    assert "repaired by a person (journal sequence 92)" in ran.out
    assert remote.asked[-1].body == {"plan": PLAN["plan"], "note": "the disk was replaced"}


def test_repair_is_not_assumed_without_a_terminal(run: Run, remote: Gateway) -> None:
    remote.answer("GET /api/sessions/fleet/repair", (200, PLAN))
    ran = run("repair", "fleet")
    assert ran.code == 5
    assert "--yes" in ran.err
    assert [asked.method for asked in remote.asked] == ["GET"]


def test_session_that_has_changed_is_reported(run: Run, remote: Gateway) -> None:
    problem = {"code": "changed_since", "message": "the session fleet is not as it was", "hint": "look again"}
    remote.answer("GET /api/sessions/fleet/repair", (200, PLAN))
    remote.answer("POST /api/sessions/fleet/repair", (409, problem))
    ran = run("repair", "fleet", "--yes")
    assert ran.code == 5
    assert "not as it was (look again)" in ran.err
