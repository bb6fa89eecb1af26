"""What is taken away from a delivery: its claim, the question to the receiver, the doubt, our own bounds."""

from __future__ import annotations

from tests.mutation.mutation import one as _one

_SENDER = "services/notifier/anchorwatch_notifier/sender.py"
_TESTS = "tests/sim/test_deliveries.py::"
_DEATHS = f"{_TESTS}test_delivery_is_settled_by_class_whenever_its_notifier_dies"
_CLAIMS = f"{_TESTS}test_foreign_claim_is_settled_as_its_class_allows"

NOTIFYING = (
    _one(
        "a delivery that cannot be repeated is not claimed",
        _SENDER,
        'return await self._send(id_, notice, await self._record(id_, notice, state, "claimed"))',
        "return await self._send(id_, notice, state)",
        f"{_DEATHS}[irreversible-notifier.send.after-unknown-1]",
    ),
    _one(
        "a delivery that its process began is taken for one that it did not",
        _SENDER,
        "claim.owner == self._me and id_ not in self._begun:",
        "claim.owner == self._me:",
        f"{_TESTS}test_delivery_sent_but_not_recorded_is_not_sent_again",
    ),
    _one(
        "the claim of another notifier is taken for none",
        _SENDER,
        '            claimed = await self._record(id_, notice, state, "claimed", doubt=doubt)\n'
        "                return await self._reconcile(id_, notice, claimed)",
        '            claimed = await self._record(id_, notice, state, "claimed", doubt=doubt)\n'
        "                return await self._send(id_, notice, claimed)",
        _CLAIMS,
    ),
    _one(
        "a notifier that is only silent is taken for dead",
        _SENDER,
        "            doubt=state.doubt,\n",
        "            doubt=False,\n",
        _CLAIMS,
    ),
    _one(
        "a doubt about a delivery is not recorded",
        "shared/anchorwatch/journal/deliveries.py",
        "state.attempts + 1, delivery_id, delivery.doubt)",
        "state.attempts + 1, delivery_id)",
        _CLAIMS,
    ),
    _one(
        "a record and its dead letter send one delivery at once",
        _SENDER,
        "wait_s = BUSY_S if id_ in self._in_flight else self._wait_s()",
        "wait_s = self._wait_s()",
        f"{_TESTS}test_delivery_in_flight_is_not_sent_a_second_time",
    ),
    _one(
        "what a receiver asks for replaces our backoff",
        _SENDER,
        "hint_s = min(error.wait_s or 0.0, HINT_S_MAX)\n",
        "hint_s = min(error.wait_s or 0.0, HINT_S_MAX)\n        if error.wait_s is not None:\n"
        "            return RetryIn(hint_s)\n",
        f"{_TESTS}test_hint_of_a_receiver_replaces_none_of_our_bounds",
    ),
    _one(
        "what a receiver asks for has no bound",
        _SENDER,
        "min(error.wait_s or 0.0, HINT_S_MAX)",
        "error.wait_s or 0.0",
        f"{_TESTS}test_hint_of_a_receiver_replaces_none_of_our_bounds",
    ),
    _one(
        "a record is acked while a channel still waits",
        "services/notifier/anchorwatch_notifier/worker.py",
        "    return RetryIn(min(max(min(waits_s), RETRY_S_MIN), RETRY_S_MAX)) if waits_s else Done()",
        "    return Done()",
        f"{_TESTS}test_receiver_that_sets_a_delay_is_not_called_before_it",
    ),
)
