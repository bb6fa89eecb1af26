"""What is taken away from the worker engine: the ack after the outcome, the keys, the letters, the drain."""

from __future__ import annotations

from tests.mutation.mutation import one as _one

_WORKER = "shared/anchorwatch/service/worker.py"
_TESTS = "tests/unit/service/test_worker.py::"

WORKING = (
    _one(
        "a message is acked before its handler is done",
        _WORKER,
        "                result = await self._handle(current)\n",
        "                await self._answer(current.deliveries, Done())\n                current.deliveries = []\n"
        "                result = await self._handle(current)\n",
        f"{_TESTS}test_message_is_acked_only_after_its_handler_is_done",
        "tests/sim/test_effects_by_death.py::test_effect_is_settled_as_its_class_allows_at_any_death"
        "[set-after the claim-succeeded-1-another goes on]",
    ),
    _one(
        "items of one key are handled at the same time",
        _WORKER,
        "        queue = self._in_hand.get(key)\n",
        "        queue = None\n",
        f"{_TESTS}test_items_of_one_key_are_handled_in_order_one_at_a_time",
    ),
    _one(
        "a batch handles an item that a dead letter has in hand",
        _WORKER,
        "        batch = [in_hand for in_hand in arrived if self._take(in_hand)]\n",
        "        batch = [in_hand for in_hand in arrived if self._take(in_hand) or True]\n",
        f"{_TESTS}test_batch_leaves_out_an_item_that_is_in_hand",
    ),
    _one(
        "a message that is redelivered in hand is handled twice",
        _WORKER,
        "        if earlier.stored.sequence == arrived.stored.sequence:",
        "        if False:",
        f"{_TESTS}test_message_that_is_redelivered_in_hand_joins_it",
    ),
    _one(
        "a delivery in hand is not kept alive",
        _WORKER,
        "                    self._alive.hold(delivery)\n",
        "                    pass\n",
        f"{_TESTS}test_slow_handler_keeps_its_delivery",
    ),
    _one(
        "a failed message is acked without its dead letter",
        _WORKER,
        "        return Done() if await self.letters.failed(address, error) else later",
        "        return Done()",
        f"{_TESTS}test_failure_of_the_message_becomes_a_dead_letter",
    ),
    _one(
        "a stopping worker drops the work that it has begun",
        _WORKER,
        "            if self._tasks:\n                await asyncio.wait(self._tasks, timeout=self.finish_s)\n",
        "",
        f"{_TESTS}test_stopping_worker_lets_its_work_end_within_a_limit",
    ),
    _one(
        "a message of a newer release is acked",
        _WORKER,
        "            return RetryIn(NEWER_RELEASE_S)",
        "            return Done()",
        f"{_TESTS}test_message_of_a_newer_release_waits",
    ),
)
