"""What is taken away from counting, from the list of models and from what is paid, and who must notice."""

from __future__ import annotations

from tests.mutation.mutation import one

_CORRECTED = "shared/anchorwatch/models/corrected.py"
_ASKING = "services/planner/anchorwatch_planner/step.py"
_ACCOUNT = "services/planner/anchorwatch_planner/account.py"
_FRESHNESS = "services/planner/anchorwatch_planner/decision.py"

_EMERGENCY = "shared/anchorwatch/core/emergency.py"

MINDS = (
    one(
        "a message may fill every later request with labelled lines",
        "services/gateway/anchorwatch_gateway/inputs.py",
        "            await check_message(parts, request.ref, anchor.agent, message.content)\n",
        "            pass\n",
        "tests/integration/gateway/test_controls.py",
    ),
    one(
        "summaries are paid for although no summary makes the request fit",
        "services/planner/anchorwatch_planner/fitting.py",
        "            _check_fixed(question, state)\n",
        "",
        "tests/sim/test_compaction.py",
    ),
    one(
        "a turn that ends cuts what a person wrote",
        "shared/anchorwatch/core/session/conversation.py",
        "        inputs=given,\n",
        "        inputs=tuple(replace(each, text=each.text[:1_200]) for each in given),\n",
        "tests/unit/context/test_words.py",
    ),
    one(
        "missing telemetry ends an emergency",
        _EMERGENCY,
        "    if seen is None:\n        return before\n",
        "    if seen is None:\n        return None\n",
        "tests/sim/test_emergency.py::test_missing_telemetry_keeps_an_emergency_open",
    ),
    one(
        "an emergency is recorded at the end of its turn only",
        _ASKING,
        "        # Before a model is called: people hear of an emergency also if no model answers (INV-707).\n"
        "        state = await self._note_emergency(ref, state, runtime, observation)\n",
        "",
        "tests/sim/test_emergency.py",
    ),
    one(
        "the end of a turn ends an emergency without a word to people",
        "shared/anchorwatch/core/session/decide.py",
        "    return after if change_of(anchor.emergency, after) is None else anchor.emergency\n",
        "    return after\n",
        "tests/unit/core/test_emergency.py::test_end_of_a_turn_only_renews_an_emergency",
    ),
    one(
        "a success that leads to nothing counts as progress",
        "shared/anchorwatch/core/session/outcome.py",
        "    if no_progress:\n",
        "    if no_progress and not done:\n",
        "tests/unit/planner/test_think.py::test_success_that_leads_to_nothing_is_unresolved",
    ),
    one(
        "the executor lets a launch through during its backoff",
        "packs/fleet/anchorwatch_fleet/policy.py",
        '        rule="!observation.launch_backoff",\n',
        '        rule="true",\n',
        "tests/unit/fleet/test_launches.py::test_launch_is_refused_during_the_backoff_and_while_unknown",
    ),
    one(
        "no rules decide while the model is away",
        "shared/anchorwatch/models/catalog.py",
        "else (RULES,)\n",
        "else ()\n",
        "tests/unit/models/test_catalog.py",
        "tests/sim/test_emergency.py",
    ),
    one(
        "a model that is skipped for a while does not count as away",
        _ASKING,
        "    return tuple({**skipped, **failed}.items())\n",
        "    return tuple(failed.items())\n",
        "tests/sim/test_emergency.py::test_outage_is_a_notice_once_and_ends_with_an_answer",
    ),
    one(
        "a count that nothing has proved is trusted",
        _CORRECTED,
        "UNPROVED_RATIO = 1.3",
        "UNPROVED_RATIO = 1.0",
        "tests/integration/models/test_incident.py",
    ),
    one(
        "an endpoint's report is not learned from",
        _CORRECTED,
        "        if reply.usage.prompt_tokens is not None:\n",
        "        if False:\n",
        "tests/unit/models/test_correction.py",
    ),
    one(
        "a smaller context is found out again in each turn",
        _CORRECTED,
        "            self._refused(self.count(request), error)\n",
        "",
        "tests/integration/models/test_incident.py",
    ),
    one(
        "a key goes to every endpoint",
        "shared/anchorwatch/models/catalog.py",
        '        kept["model_key"] = None\n',
        "        pass\n",
        "tests/unit/models/test_catalog.py",
    ),
    one(
        "a dead model is asked first each time",
        "services/planner/anchorwatch_planner/runtimes.py",
        "key=lambda each: not each.status.health.is_worth_asking(now_ms)",
        "key=lambda each: 0",
        "tests/sim/test_fallback.py",
    ),
    one(
        "a request that is too large speaks against its model",
        _ASKING,
        "        if isinstance(error, OverBudget | ContextOverflow):\n",
        "        if isinstance(error, str):\n",
        "tests/sim/test_fallback.py",
    ),
    one(
        "what a slow model decided is committed on an old sight",
        _FRESHNESS,
        "    return any(call.mutating and age_s > limits.get(call.tool, age_s) for call in calls)",
        "    return False",
        "tests/sim/test_freshness.py",
    ),
    one(
        "a decision on a sight that is no more so stands",
        _FRESHNESS,
        "    return bool(now.digest) and now.digest == before.digest",
        "    return bool(before or now)",
        "tests/sim/test_freshness.py",
    ),
    one(
        "a summary costs nothing",
        "shared/anchorwatch/core/session/apply.py",
        "            state = _spend(state, event.usage, state.spent.day * DAY_MS)\n",
        "",
        "tests/unit/memory/test_spending.py",
    ),
    one(
        "a discarded answer costs nothing",
        _ACCOUNT,
        "            enter(retry.fault.usage)\n",
        "",
        "tests/sim/test_spending.py",
    ),
    one(
        "a budget is not checked between two attempts",
        _ACCOUNT,
        "            raise BudgetSpent(reason)\n",
        "            pass\n",
        "tests/sim/test_spending.py",
    ),
    one(
        "a request is not reserved before it is sent",
        _ACCOUNT,
        "            await self._reserve(ref, account, runtime, counted)\n        try:",
        "            pass\n        try:",
        "tests/sim/test_spending.py::test_request_of_a_cancelled_turn_stays_counted",
    ),
    one(
        "a report that cannot be true is believed",
        "shared/anchorwatch/models/usage.py",
        "    return counted > 0 and counted / CREDIBLE_RATIO <= reported <= counted * CREDIBLE_RATIO",
        "    return counted > 0",
        "tests/unit/models/test_usage.py",
    ),
    one(
        "a malformed call may be repeated for ever",
        _FRESHNESS,
        "    if made < repeats_max:\n        return problem\n",
        "    if made < 10_000:\n        return problem\n",
        "tests/sim/test_spending.py",
    ),
)
