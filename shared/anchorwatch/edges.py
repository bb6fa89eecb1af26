"""The durable edges of the services: the moments just before and just after a process changes something that outlives it.

A process that dies at an edge leaves the world in one of the states that the design must survive: the act not done, or done
and known to no process. A service marks an act with `around`, or one edge with `reached`; both do nothing unless a hook is
installed: the failpoints of real processes (`anchorwatch.service.failpoints`), or a simulation.

An act that fails does not reach its edge ``after``. An ack has only the edge before it: after it nothing is left to lose.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from enum import StrEnum


class Edge(StrEnum):
    """``<service>.<act>.<before|after>``; the service is the part of the code that acts, whichever process runs it."""

    OBSERVER_INPUT_BEFORE = "observer.input.before"
    OBSERVER_INPUT_AFTER = "observer.input.after"
    OBSERVER_ARTIFACT_BEFORE = "observer.artifact.before"
    OBSERVER_ARTIFACT_AFTER = "observer.artifact.after"
    OBSERVER_CHANGE_BEFORE = "observer.change.before"
    OBSERVER_CHANGE_AFTER = "observer.change.after"
    OBSERVER_ACK_BEFORE = "observer.ack.before"
    OBSERVER_LETTER_BEFORE = "observer.letter.before"
    OBSERVER_LETTER_AFTER = "observer.letter.after"

    PLANNER_TICK_INPUT_BEFORE = "planner.tick_input.before"
    PLANNER_TICK_INPUT_AFTER = "planner.tick_input.after"
    PLANNER_REFUSE_BEFORE = "planner.refuse.before"
    PLANNER_REFUSE_AFTER = "planner.refuse.after"
    PLANNER_RESOLUTION_BEFORE = "planner.resolution.before"
    PLANNER_RESOLUTION_AFTER = "planner.resolution.after"
    PLANNER_SCHEDULE_BEFORE = "planner.schedule.before"
    PLANNER_SCHEDULE_AFTER = "planner.schedule.after"
    PLANNER_OCCURRENCE_BEFORE = "planner.occurrence.before"
    PLANNER_OCCURRENCE_AFTER = "planner.occurrence.after"
    PLANNER_SCHEDULE_END_BEFORE = "planner.schedule_end.before"
    PLANNER_SCHEDULE_END_AFTER = "planner.schedule_end.after"
    PLANNER_ACQUIRE_BEFORE = "planner.acquire.before"
    PLANNER_ACQUIRE_AFTER = "planner.acquire.after"
    PLANNER_TAKEOVER_BEFORE = "planner.takeover.before"
    PLANNER_TAKEOVER_AFTER = "planner.takeover.after"
    PLANNER_EMERGENCY_BEFORE = "planner.emergency.before"
    PLANNER_EMERGENCY_AFTER = "planner.emergency.after"
    PLANNER_REQUEST_BEFORE = "planner.request.before"
    PLANNER_REQUEST_AFTER = "planner.request.after"
    PLANNER_MODEL_BEFORE = "planner.model.before"
    PLANNER_MODEL_AFTER = "planner.model.after"
    PLANNER_COMPACTION_BEFORE = "planner.compaction.before"
    PLANNER_COMPACTION_AFTER = "planner.compaction.after"
    PLANNER_STEP_BEFORE = "planner.step.before"
    PLANNER_STEP_AFTER = "planner.step.after"
    PLANNER_END_BEFORE = "planner.end.before"
    PLANNER_END_AFTER = "planner.end.after"
    PLANNER_SNAPSHOT_BEFORE = "planner.snapshot.before"
    PLANNER_SNAPSHOT_AFTER = "planner.snapshot.after"
    PLANNER_ACK_BEFORE = "planner.ack.before"
    PLANNER_LETTER_BEFORE = "planner.letter.before"
    PLANNER_LETTER_AFTER = "planner.letter.after"

    EXECUTOR_CLAIM_BEFORE = "executor.claim.before"
    EXECUTOR_CLAIM_AFTER = "executor.claim.after"
    EXECUTOR_RELEASE_BEFORE = "executor.release.before"
    EXECUTOR_RELEASE_AFTER = "executor.release.after"
    EXECUTOR_EFFECT_BEFORE = "executor.effect.before"
    EXECUTOR_EFFECT_AFTER = "executor.effect.after"
    EXECUTOR_RECONCILE_BEFORE = "executor.reconcile.before"
    EXECUTOR_RECONCILE_AFTER = "executor.reconcile.after"
    EXECUTOR_ARTIFACT_BEFORE = "executor.artifact.before"
    EXECUTOR_ARTIFACT_AFTER = "executor.artifact.after"
    EXECUTOR_BLOCK_BEFORE = "executor.block.before"
    EXECUTOR_BLOCK_AFTER = "executor.block.after"
    EXECUTOR_OUTCOME_BEFORE = "executor.outcome.before"
    EXECUTOR_OUTCOME_AFTER = "executor.outcome.after"
    EXECUTOR_LATE_BEFORE = "executor.late.before"
    EXECUTOR_LATE_AFTER = "executor.late.after"
    EXECUTOR_ACK_BEFORE = "executor.ack.before"
    EXECUTOR_RETRY_BEFORE = "executor.retry.before"
    EXECUTOR_RETRY_AFTER = "executor.retry.after"
    EXECUTOR_LETTER_BEFORE = "executor.letter.before"
    EXECUTOR_LETTER_AFTER = "executor.letter.after"

    NOTIFIER_CLAIM_BEFORE = "notifier.claim.before"
    NOTIFIER_CLAIM_AFTER = "notifier.claim.after"
    NOTIFIER_SEND_BEFORE = "notifier.send.before"
    NOTIFIER_SEND_AFTER = "notifier.send.after"
    NOTIFIER_DELIVERY_BEFORE = "notifier.delivery.before"
    NOTIFIER_DELIVERY_AFTER = "notifier.delivery.after"
    NOTIFIER_ACK_BEFORE = "notifier.ack.before"
    NOTIFIER_LETTER_BEFORE = "notifier.letter.before"
    NOTIFIER_LETTER_AFTER = "notifier.letter.after"

    MEMORY_STORE_BEFORE = "memory.store.before"
    MEMORY_STORE_AFTER = "memory.store.after"
    MEMORY_ACK_BEFORE = "memory.ack.before"

    GATEWAY_AGENT_BEFORE = "gateway.agent.before"
    GATEWAY_AGENT_POINTER_BEFORE = "gateway.agent_pointer.before"
    GATEWAY_AGENT_AFTER = "gateway.agent.after"
    GATEWAY_SESSION_BEFORE = "gateway.session.before"
    GATEWAY_SESSION_AFTER = "gateway.session.after"
    GATEWAY_BINDING_BEFORE = "gateway.binding.before"
    GATEWAY_BINDING_AFTER = "gateway.binding.after"
    GATEWAY_ARTIFACT_BEFORE = "gateway.artifact.before"
    GATEWAY_ARTIFACT_AFTER = "gateway.artifact.after"
    GATEWAY_INPUT_BEFORE = "gateway.input.before"
    GATEWAY_INPUT_AFTER = "gateway.input.after"
    GATEWAY_RESOLVE_BEFORE = "gateway.resolve.before"
    GATEWAY_RESOLVE_AFTER = "gateway.resolve.after"
    GATEWAY_CONTROL_BEFORE = "gateway.control.before"
    GATEWAY_CONTROL_AFTER = "gateway.control.after"
    GATEWAY_SWITCH_BEFORE = "gateway.switch.before"
    GATEWAY_SWITCH_AFTER = "gateway.switch.after"
    GATEWAY_SCHEDULE_BEFORE = "gateway.schedule.before"
    GATEWAY_SCHEDULE_AFTER = "gateway.schedule.after"
    GATEWAY_LETTER_BEFORE = "gateway.letter.before"
    GATEWAY_LETTER_AFTER = "gateway.letter.after"
    GATEWAY_EVENT_BEFORE = "gateway.event.before"
    GATEWAY_EVENT_AFTER = "gateway.event.after"

    @property
    def service(self) -> str:
        """The part of the code that acts."""
        return self.value.partition(".")[0]


Hook = Callable[[Edge], None]

_hook: Hook | None = None


def install(hook: Hook | None) -> None:
    """Call ``hook`` at every edge of this process; None removes the hook."""
    global _hook  # noqa: PLW0603 - one process, one hook
    _hook = hook


def reached(edge: Edge) -> None:
    """This process is at ``edge``."""
    if _hook is not None:
        _hook(edge)


_AFTER = {
    before: Edge[after]
    for before in Edge
    if (after := before.name.removesuffix("BEFORE") + "AFTER") in Edge.__members__
}


@contextlib.contextmanager
def around(before: Edge) -> Iterator[None]:
    """Run an act between the edge ``before`` it and the one after it, which a failure does not reach.

    >>> with around(Edge.EXECUTOR_CLAIM_BEFORE):
    ...     pass  # reaches EXECUTOR_CLAIM_BEFORE, acts, and reaches EXECUTOR_CLAIM_AFTER
    """
    after = _AFTER[before]
    reached(before)
    yield
    reached(after)
