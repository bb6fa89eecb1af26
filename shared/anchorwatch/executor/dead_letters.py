"""The outcome of a command that cannot be handled: without one, its turn would wait for ever."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from anchorwatch.core.effect.state import EffectState, Owner
from anchorwatch.core.errors import NotFound, Unavailable
from anchorwatch.core.letters import DeadLetter
from anchorwatch.edges import Edge, around
from anchorwatch.executor.job import Job, outcome
from anchorwatch.executor.recorder import Recorder
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.inputs import accept, input_id
from anchorwatch.journal.mapping import input_body
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import Peers

RULE = "dead_letter"
"""The rule that refuses the command, and the error code where it may have happened."""


@dataclass(frozen=True, slots=True)
class CommandLetters:
    """Settles and retries commands that have a dead letter."""

    recorder: Recorder
    committer: Committer
    agents: AgentDirectory
    peers: Peers
    me: Owner
    log: structlog.stdlib.BoundLogger

    async def settle(self, job: Job, letter: DeadLetter) -> None:
        """Give the command an outcome if it has none: `refused` if it was not begun, otherwise `unknown`.

        Raises:
            Unavailable: the owner of its claim may be running it. Fenced: another process wrote to it meanwhile.
        """
        state = await self.recorder.effects.load(job.ref, job.pool, job.call, job.sequence)
        if state.outcome is not None:
            return
        text = f"it could not be handled {letter.tries} times: {letter.fault.text}"
        self.log.error("command.given_up", call=str(job), letter=letter.address.letter_id)
        if state.claim is None and not state.first_claim:
            await self.recorder.settle(job, state, outcome(job, "refused", text, rule=RULE))
            return
        await self._check_owner(state)
        done = outcome(job, "unknown", f"it may have happened; {text}", error=RULE, claim=state.claim)
        await self.recorder.unknown(job, await self._pack(job), state, done)

    async def request_decision(self, job: Job, letter: DeadLetter) -> bool:
        """If the command was refused for its letter, have its session decide again, once for each retry. Whether it was."""
        state = await self.recorder.effects.load(job.ref, job.pool, job.call, job.sequence)
        if state.outcome is None or state.outcome.rule != RULE or not letter.actions:
            return False
        order = letter.actions[-1]
        id_ = input_id("dl", letter.address.workspace, letter.address.letter_id, order.key)
        call = f"{job.command.tool} ({job.ref.session}/{job.call})"
        text = f"{call} could not be handled before; try it again where it is still wanted"
        body = input_body("trigger", 0, text=text, by=order.by)
        with around(Edge.EXECUTOR_RETRY_BEFORE):
            await accept(self.committer, job.ref, id_, body, at_ms=order.at_ms, writer=self.recorder.identity)
        return True

    async def _check_owner(self, state: EffectState) -> None:
        owner = state.claim.owner if state.claim is not None else None
        if owner is None or owner == self.me:
            return
        if await self.peers.alive(owner.instance, owner.incarnation) not in ("dead", "gone"):
            raise Unavailable(f"{owner.instance} holds the claim")

    async def _pack(self, job: Job) -> str:
        try:
            return (await self.agents.get(job.ref.workspace, job.command.agent)).pack
        except NotFound:
            return ""
