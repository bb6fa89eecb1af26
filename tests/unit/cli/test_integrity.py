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


def test_a_whole_session_is_said_to_be_whole_and_exits_0(run: Run, remote: Gateway) -> None:
    remote.answer("GET /api/sessions/fleet/verify", (200, WHOLE))
    ran = run("journal", "verify", "fleet")
    assert (ran.code, ran.out) == (0, "fleet: 76 records, whole\n")


def test_damage_is_told_with_its_consequence_and_exits_1(run: Run, remote: Gateway) -> None:
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


def test_what_a_repair_accepted_is_told_and_exits_0(run: Run, remote: Gateway) -> None:
    found = {**WHOLE, "findings": [{**FINDING, "accepted_at": 99}], "repairs": [REPAIR]}
    remote.answer("GET /api/sessions/fleet/verify", (200, found))
    ran = run("journal", "verify", "fleet")
    assert ran.code == 0
    assert "accepted by the repair at 99" in ran.out
    assert "repaired at 99 by ann" in ran.out
    assert ran.out.splitlines()[-1] == "fleet: 76 records, whole but for what was accepted"


def test_programs_get_the_whole_answer(run: Run, remote: Gateway) -> None:
    found = {**WHOLE, "whole": False, "findings": [FINDING]}
    remote.answer("GET /api/sessions/fleet/verify", (200, found))
    ran = run("journal", "verify", "fleet", "--json")
    assert (ran.code, json.loads(ran.out)) == (1, found)
