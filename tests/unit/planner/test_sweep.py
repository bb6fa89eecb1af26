"""A sweep makes a pass over every session, and delays no wake-up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import structlog
from anchorwatch.core.names import SessionRef
from anchorwatch.service.worker import Done
from anchorwatch_planner.mailbox import FairSemaphore, Mailboxes
from anchorwatch_planner.sweep import AT_ONCE, sweep
from anchorwatch_planner.takeover import Cause
from anchorwatch_planner.turn import PassResult

SESSIONS = 50


class View:
    """A bus that knows sessions, and nothing else."""

    async def bucket(self, name: str) -> Any:
        del name
        return self

    async def keys(self) -> list[str]:
        return [f"default.s{number:02}" for number in range(SESSIONS)]


async def test_wake_up_does_not_wait_for_the_whole_sweep() -> None:
    order: list[tuple[str, str]] = []
    at_once: list[int] = []
    looking = 0
    begun = asyncio.Event()

    async def look(ref: SessionRef, causes: Sequence[Cause]) -> PassResult:
        nonlocal looking
        looking += 1
        at_once.append(looking)
        begun.set()
        await asyncio.sleep(0.002)
        looking -= 1
        order.append((ref.session, causes[0].kind))
        return Done()

    mailboxes = Mailboxes(look, structlog.stdlib.get_logger(), slots=FairSemaphore(64, 64), random=Random(0))
    refs = [SessionRef("default", f"s{number:02}") for number in range(SESSIONS)]
    sweeping = asyncio.create_task(sweep(refs, mailboxes, starting=True))
    await begun.wait()
    woken = SessionRef("default", f"s{SESSIONS - 1}")
    mailboxes.post(woken, Cause("in", 7))
    assert await sweeping == SESSIONS
    assert order.index((woken.session, "in")) < 3 * AT_ONCE
    assert max(at_once) <= AT_ONCE + 1
    assert {session for session, _ in order} == {f"s{number:02}" for number in range(SESSIONS)}
    await mailboxes.close()
