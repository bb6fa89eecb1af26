"""What is taken away from executing a command: its claim, what is read behind it, its outcome, its one resource."""

from __future__ import annotations

from tests.mutation.mutants import Edit
from tests.mutation.mutation import Mutation
from tests.mutation.mutation import one as _one

_JOURNAL = "tests/conformance/test_journal.py::"
_EFFECT = "tests/unit/core/test_effect_machine.py::"
_ACTION = "shared/anchorwatch/core/effect/decide.py"
_BLOCKING = "shared/anchorwatch/core/effect/blocking.py"
_DECIDE = "shared/anchorwatch/core/session/decide.py"
_PIPELINE = "shared/anchorwatch/executor/pipeline.py"
_ATTEMPTS = "tests/unit/executor/test_attempts.py::"
_OLD = "tests/sim/test_executor_reads.py::"
_ONE = "tests/sim/test_one_at_a_time.py::"
_LOST = "tests/sim/test_lost_claims.py::test_lost_claim_command_is_settled_as_its_class_allows"

_EXECUTORS = (
    _one(
        "a constraint's rule is not judged before the claim",
        _PIPELINE,
        "    if (broken := await _constrained_at_decision(ctx, job, equipment)) is not None:\n",
        "    if (broken := None) is not None:\n",
        "tests/integration/executor/test_constraints.py::test_rule_of_a_constraint_stops_the_third_launch",
    ),
    _one(
        "a constraint's rule is not judged under the fence",
        _PIPELINE,
        "    return await constrain(ctx, state.job, state.equipment, anchor) or verdict\n",
        "    return verdict\n",
        "tests/integration/executor/test_constraints.py::test_rule_is_judged_again_under_the_fence",
    ),
    _one(
        "what the journal has lost is not asked for",
        "shared/anchorwatch/journal/effects.py",
        "state = with_holes(state, at_least, await self._holes())",
        "await self._holes()",
        f"{_LOST}[fire-executor.effect.after-unknown-1-delivered again]",
    ),
    _one(
        "what the journal has lost behind a claim leaves no doubt",
        "shared/anchorwatch/core/effect/state.py",
        "return replace(state, doubt=True)\n",
        "return state\n",
        f"{_EFFECT}test_lost_record_may_have_been_a_first_claim_or_a_takeover",
    ),
    _one(
        "what a person rejected is begun where a claim may have been lost",
        _PIPELINE,
        "if effect.approval is not None and not effect.approval.approved and effect.gate is not None:",
        "if False:",
        "tests/integration/executor/test_refusals.py::test_rejected_command_does_not_run_after_a_lost_claim",
    ),
    _one(
        "a delivery that the server counts as the first is taken for it",
        "shared/anchorwatch/executor/message.py",
        "return 1 if sequence > self._through else 2",
        "return counted",
        f"{_LOST}[fire-executor.effect.after-unknown-1-of a consumer made anew]",
    ),
    _one(
        "an executor reads the fence from the anchors that take a turn",
        "shared/anchorwatch/journal/sessions.py",
        "subject = SessionSubjects(ref).anchor_change",
        "subject = SessionSubjects(ref).anchor_turn",
        "tests/integration/executor/test_refusals.py::test_command_of_a_finished_run_is_refused",
    ),
    _one(
        "a claim of its own that was only read is believed to stand",
        _PIPELINE,
        'effect = await ctx.recorder.release(job, effect, "its answer was lost")',
        "return Judged(job, effect, equipment, claims=False)",
        f"{_OLD}test_lost_ack_and_stale_read_of_the_outcome_repeat_nothing",
    ),
    _one(
        "who lost a command to another acks it",
        _PIPELINE,
        "return Done() if settled else RetryIn(WAIT_S)",
        "return Done()",
        f"{_OLD}test_command_given_to_an_executor_that_dies_is_redelivered",
    ),
    _one(
        "an answer at a gate is looked for in a read from before it",
        "shared/anchorwatch/journal/effects.py",
        "at_least + 1, max(at_least, reach))",
        "at_least + 1, at_least)",
        f"{_OLD}test_gate_answer_is_not_lost_to_a_read_from_before_it",
    ),
    Mutation(
        "whether it has settled is looked at after the provider answered",
        (f"{_ATTEMPTS}test_answer_from_before_the_settle_time_is_requested_again",),
        (
            Edit(
                "shared/anchorwatch/executor/attempts.py",
                "            answer = await self._ask()\n",
                "            answer = await self._ask()\n            settled = self._clock.elapsed_s() >= settled_at_s\n",
            ),
        ),
    ),
)

_OLD_FENCE = f"{_OLD}test_fence_hidden_by_a_stale_read_is_seen_before_any_effect"

_ORDER = (
    _one(
        "a claim is written whatever others wrote before",
        "shared/anchorwatch/journal/effects.py",
        "last = await self._committer.commit(writes, fence, deadline_s)",
        'last = await self._committer.commit(writes, Expect(f"{writes[0].subject}.none", 0), deadline_s)',
        f"{_JOURNAL}test_interleaving_5_one_of_many_executors_claims[sim]",
    ),
    _one(
        "nothing is read behind the claim",
        _PIPELINE,
        "match await read(ctx, state):",
        "match Proceed():",
        _OLD_FENCE,
    ),
    _one(
        "a read from before the claim is believed behind it",
        _PIPELINE,
        "await _read_fence(ctx, job, effect, effect.claim.sequence, registers)",
        "await _read_fence(ctx, job, effect, 0, registers)",
        _OLD_FENCE,
    ),
    Mutation(
        "a message is acked before its session is looked at",
        ("tests/sim/test_takeover.py::test_message_of_another_planner_is_not_acked_or_refetched",),
        (
            Edit(
                "services/planner/anchorwatch_planner/mailbox.py",
                "        result = await self._pass_safely(",
                "        _settle([*before, *arrived], Done())\n        result = await self._pass_safely(",
            ),
        ),
    ),
    _one(
        "an event is acked though a session could not take it",
        "shared/anchorwatch/service/worker.py",
        "        result: Result = Done()\n        if error is not None:\n",
        "        result: Result = Done()\n        if False:\n",
        "tests/sim/test_dead_letters.py::test_retried_letter_reopens_and_is_done_once_repaired",
    ),
)

_EFFECTS = (
    _one(
        "a slow owner is replaced",
        _ACTION,
        'if owner_liveness not in ("dead", "gone"):',
        "if False:",
        f"{_EFFECT}test_slow_owner_is_never_replaced",
    ),
    _one(
        "a silent owner leaves no doubt",
        _ACTION,
        'doubt = state.doubt or owner_liveness == "gone"',
        "doubt = False",
        f"{_EFFECT}test_silent_owner_leaves_a_doubt_that_no_later_death_removes",
    ),
    _one(
        "the settle time is not waited for",
        _ACTION,
        "if not settled:",
        "if False:",
        f"{_EFFECT}test_not_done_allows_a_second_run_only_if_none_in_flight",
    ),
    _one(
        "not done is enough, whoever may go on",
        _ACTION,
        'return "unknown" if doubt else "run"',
        'return "run"',
        f"{_EFFECT}test_not_done_allows_a_second_run_only_if_none_in_flight",
    ),
    _one(
        "refused on a second claim",
        _ACTION,
        "return FencedOff(first=state.claim is None or state.claim.sequence == state.first_claim)",
        "return FencedOff(first=True)",
        f"{_EFFECT}test_refusal_requires_a_first_claim",
    ),
    _one(
        "what a dead owner began is simply run again",
        _ACTION,
        'return MarkUnknown(f"{owner} died while it ran; it may have happened")',
        'return ClaimAgain(then="run", doubt=doubt)',
        f"{_EFFECT}test_dead_owner_claim_is_replaced_as_its_class_allows",
    ),
)

_RESOURCES = (
    _one(
        "an earlier command is not waited for",
        _BLOCKING,
        "if state.outcome is None:",
        "if False:",
        "tests/unit/core/test_blocking.py",
    ),
    _one(
        "an unknown effect of the session blocks nothing",
        _BLOCKING,
        "if state.unknown:",
        "if False:",
        "tests/unit/core/test_blocking.py",
    ),
    _one(
        "an unknown effect of another session blocks nothing",
        _BLOCKING,
        "other_blocks = state.unknown and state.outcome_sequence < mine.first_claim",
        "other_blocks = False",
        "tests/unit/core/test_blocking.py",
    ),
    _one(
        "a command of another session that is at work is not waited for",
        _BLOCKING,
        "if state.outcome is None and (state.first_claim or state.attempts < attempt):",
        "if False:",
        "tests/unit/core/test_blocking.py",
    ),
    _one(
        "a claim does not enter its effect in the register of its resource",
        _PIPELINE,
        "await ctx.blocks.enter_only(resource, block, (*unknown, mine), ctx.clock.now_ms())",
        "pass",
        f"{_ONE}test_commands_of_two_sessions_run_one_at_a_time",
    ),
    _one(
        "the register of a resource is written whatever others wrote before",
        "shared/anchorwatch/journal/blocks.py",
        "fence = Expect(resource.subject, block.head)",
        'fence = Expect(f"{resource.subject}.none", 0)',
        f"{_ONE}test_commands_of_two_sessions_run_one_at_a_time",
    ),
    _one(
        "what began before a block is refused",
        _BLOCKING,
        "other_blocks = state.unknown and state.outcome_sequence < mine.first_claim",
        "other_blocks = state.unknown",
        "tests/unit/core/test_blocking.py",
    ),
    _one(
        "a key from the model's words",
        _DECIDE,
        "intent = (call.verb or call.tool, call.resource)",
        "intent = (call.verb or call.tool, str(call.args))",
        "tests/unit/core/test_intents.py",
    ),
    _one(
        "a later attempt speaks for the one whose answer was lost",
        "shared/anchorwatch/executor/attempts.py",
        "if not doubt or isinstance(error, NeverDone):",
        "if error:",
        "tests/unit/executor/test_attempts.py",
    ),
    _one(
        "the request that settled an effect is not known again",
        "shared/anchorwatch/core/effect/resolve.py",
        'if outcome.state == "resolved":',
        "if False:",
        "tests/unit/core/test_resolve.py",
    ),
)

EXECUTING = (*_EXECUTORS, *_ORDER, *_EFFECTS, *_RESOURCES)
