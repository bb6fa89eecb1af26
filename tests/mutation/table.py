"""All mutations, and those of the journal and the session machine.

Each mutation is a defect that would break a promise of docs/protocol.md. Its tests are the narrowest that notice it.
"""

from __future__ import annotations

from tests.mutation.executing import EXECUTING
from tests.mutation.limits import LIMITS
from tests.mutation.minds import MINDS
from tests.mutation.mutation import one as _one
from tests.mutation.notifying import NOTIFYING
from tests.mutation.schedules import SCHEDULES
from tests.mutation.serving import SERVING
from tests.mutation.working import WORKING

_JOURNAL = "tests/conformance/test_journal.py::"
_FAULTS = "tests/sim/test_journal_faults.py::test_acknowledged_commit_is_stored_exactly_once"
_SESSION = "tests/unit/core/test_session_machine.py::"
_EVIDENCE = "tests/unit/planner/test_takeover.py"


_COMMIT = "shared/anchorwatch/journal/commit.py"
_SESSIONS = "shared/anchorwatch/journal/sessions.py"
_INPUTS = "shared/anchorwatch/journal/inputs.py"
_DECIDE = "shared/anchorwatch/core/session/decide.py"
_TURN_END = "shared/anchorwatch/core/session/turn_end.py"
_TRANSITIONS = "shared/anchorwatch/core/session/transitions.py"
_APPLY = "shared/anchorwatch/core/session/apply.py"
_TAKEOVER = "services/planner/anchorwatch_planner/takeover.py"

_WRITES = (
    _one(
        "a write without its fence",
        _COMMIT,
        "expect=fence if index == 0 else write.expect,",
        "expect=None,",
        f"{_JOURNAL}test_only_one_of_two_planners_starts_the_turn[sim]",
    ),
    _one(
        "a duplicate taken for success",
        _COMMIT,
        "if not ack.duplicate:",
        "if ack.sequence:",
        "tests/sim/test_journal_faults.py::test_shared_id_of_two_writers_is_no_success_on_replicas",
    ),
    _one(
        "another's record taken for ours by its id",
        _COMMIT,
        "return (stored.message_id, stored.payload) == (message.message_id, message.payload)",
        "return stored.message_id == message.message_id",
        f"{_JOURNAL}test_interleaving_3_shared_message_id_proves_no_success[sim]",
    ),
    _one(
        "a write that was not answered is taken as not stored",
        _COMMIT,
        "landed = await self._landed(messages, fence)",
        "landed = None",
        _FAULTS,
    ),
    _one(
        "a key with another body gets the first one's receipt",
        _INPUTS,
        'if first.body["body_sha256"] != body["body_sha256"]:',
        "if False:",
        f"{_JOURNAL}test_one_key_gives_one_input_and_one_receipt[sim]",
    ),
    _one(
        "a record that does not follow the one before",
        _SESSIONS,
        "if recorded.previous != digest:",
        "if False:",
        f"{_JOURNAL}test_gap_in_the_chain_of_digests_is_reported[sim]",
    ),
)

_TURNS = (
    _one(
        "the acquire pins nothing",
        _DECIDE,
        "inputs_through=max(command.through, anchor.inputs_through),",
        "inputs_through=anchor.inputs_through,",
        f"{_SESSION}test_turn_runs_from_wake_to_rest",
    ),
    _one(
        "a cancelled turn's inputs are not consumed",
        _TURN_END,
        "through = anchor.turn.inputs_through if anchor.turn else 0",
        "through = 0",
        f"{_SESSION}test_cancel_raises_the_fence_and_consumes_the_inputs",
    ),
    _one(
        "the end of a turn leaves the fence",
        _TRANSITIONS,
        'Transition(ACTIVE, to="idle", fence=True, ends_turn=True)',
        'Transition(ACTIVE, to="idle", ends_turn=True)',
        f"{_SESSION}test_turn_runs_from_wake_to_rest",
    ),
    _one(
        "any planner may commit",
        _DECIDE,
        "or anchor.execution_id != execution_id:",
        ":",
        f"{_SESSION}test_planner_without_the_session_commits_nothing",
    ),
    _one(
        "an ephemeral result outlives its planner",
        _APPLY,
        "return state._replace(turn=_withdraw_ephemeral(turn))",
        "return state._replace(turn=turn)",
        f"{_SESSION}test_takeover_keeps_the_run_and_withdraws_ephemeral_results",
    ),
    _one(
        "a takeover on any redelivery",
        _TAKEOVER,
        "cause.sequence == turn.woken_by and cause.attempt > 1",
        "cause.attempt > 1",
        _EVIDENCE,
    ),
    _one(
        "a takeover on a first delivery",
        _TAKEOVER,
        "cause.sequence == turn.woken_by and cause.attempt > 1",
        "cause.sequence == turn.woken_by",
        _EVIDENCE,
    ),
    _one(
        "a takeover on an outcome that its holder knew",
        _TAKEOVER,
        "settles and cause.sequence > turn.held_since",
        "settles",
        _EVIDENCE,
    ),
)

_HOLDERS = (
    _one(
        "a turn is taken back by what it was taken by before",
        "services/planner/anchorwatch_planner/turn.py",
        "                    evidence = []\n",
        "                    evidence = causes\n",
        "tests/sim/test_takeover.py",
    ),
    _one(
        "a planner answers for what another holds",
        "services/planner/anchorwatch_planner/mailbox.py",
        "case LeftToHolder(by=by) if 0 != by == cause.sequence:",
        "case LeftToHolder(by=by) if 0 > by == cause.sequence:",
        "tests/sim/test_takeover.py",
    ),
    _one(
        "the messages of a turn are acked at its end",
        "services/planner/anchorwatch_planner/turn.py",
        "return TurnEnded()",
        "return Done()",
        "tests/sim/test_planner_reads.py::test_input_during_a_turn_is_taken_by_the_next",
    ),
    _one(
        "the messages of a turn are acked before anybody has looked behind its end",
        "services/planner/anchorwatch_planner/mailbox.py",
        "            _settle(before, Done())\n",
        "            _settle([*before, *arrived], Done())\n",
        "tests/sim/test_planner_reads.py::test_turn_messages_stay_pending_until_its_end_is_checked",
    ),
    _one(
        "a turn is begun on a supposed state though an outcome may still come",
        "services/planner/anchorwatch_planner/sessions.py",
        " or not is_closed(known)",
        "",
        "tests/sim/test_planner_reads.py::test_session_is_read_whole_where_an_outcome_may_still_come",
    ),
    _one(
        "of the inputs below the one in hand a turn knows nothing",
        _SESSIONS,
        "            SessionSubjects(ref).inputs, state, state.read_through + 1, at_least, limit=1",
        "            SessionSubjects(ref).inputs, state, at_least, at_least, limit=1",
        "tests/sim/test_planner_reads.py::test_turn_takes_all_inputs_up_to_the_current_message",
    ),
    _one(
        "a check is told by the tick of one that was cleared",
        "services/planner/anchorwatch_planner/turn.py",
        'f"check-{runs + 1}-{at_ms}-{state.head}"',
        'f"check-{runs + 1}-{at_ms}"',
        "tests/sim/test_left_alone.py::test_check_cleared_by_a_person_is_scheduled_again",
    ),
)

MUTATIONS = (
    *_WRITES,
    *_TURNS,
    *_HOLDERS,
    *EXECUTING,
    *SCHEDULES,
    *LIMITS,
    *MINDS,
    *WORKING,
    *NOTIFYING,
    *SERVING,
)
