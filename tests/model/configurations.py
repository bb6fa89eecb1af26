"""Which configurations are searched: small ones in each run of the suite, larger ones by ``make model``."""

from __future__ import annotations

from collections.abc import Mapping

from anchorwatch.core.tools import EffectClass

from tests.model.rules import Faults, Setup

MUTATING = (EffectClass.IDEMPOTENT, EffectClass.RECONCILABLE, EffectClass.IRREVERSIBLE)

_PLANNERS = {
    "two inputs": Setup(planners=2, inputs=2),
    "a message in two hands, old reads": Setup(planners=2, faults=Faults(redeliveries=2, stale_reads=1)),
    "a planner dies and comes back": Setup(planners=2, faults=Faults(crashes=1)),
    "a planner dies for good, its message in two hands": Setup(
        planners=2, planners_return=False, faults=Faults(crashes=1, redeliveries=1)
    ),
    "a planner dies for good, answers are lost": Setup(
        planners=2, planners_return=False, faults=Faults(crashes=1, lost_acks=1, unanswered=1)
    ),
    "a planner dies for good, two inputs": Setup(
        planners=2, inputs=2, planners_return=False, faults=Faults(crashes=1)
    ),
    "a planner dies for good, cancel": Setup(
        planners=2, planners_return=False, people=("cancel",), faults=Faults(crashes=1)
    ),
    "a planner dies for good, pause": Setup(
        planners=2, planners_return=False, people=("pause",), faults=Faults(crashes=1)
    ),
    "two inputs, sessions remembered": Setup(planners=2, inputs=2, remembers=True),
    "cancel, sessions remembered": Setup(planners=2, inputs=2, people=("cancel",), remembers=True),
    "cancel, two inputs": Setup(planners=2, inputs=2, people=("cancel",)),
    "pause, cancel": Setup(planners=2, people=("pause", "cancel")),
    "reset, steer": Setup(planners=2, people=("reset", "steer")),
    "delete": Setup(planners=2, people=("delete",)),
}
_TOGETHER = {
    "two commands, a gate, cancel": Setup(
        planners=1, executors=1, commands=2, gated=1, people=("answer", "cancel")
    ),
    "two commands, a gate, reset": Setup(
        planners=1, executors=1, commands=2, gated=1, people=("answer", "reset")
    ),
    "two planners, two commands, reset": Setup(planners=2, executors=1, commands=2, people=("reset",)),
    "two executors, two commands, cancel, a death": Setup(
        executors=2, commands=2, people=("cancel",), faults=Faults(crashes=1)
    ),
    "two executors, three commands, reset": Setup(executors=2, commands=3, people=("reset",)),
}


def _executors(effect_class: EffectClass) -> dict[str, Setup]:
    return {
        f"{effect_class}: three executors, two deaths": Setup(
            executors=3, effect_class=effect_class, faults=Faults(crashes=2, redeliveries=1)
        ),
        f"{effect_class}: a silent owner, a request that is late": Setup(
            executors=2, effect_class=effect_class, faults=Faults(crashes=1, suspicions=1, timeouts=1)
        ),
        f"{effect_class}: cancel, every fault": Setup(
            executors=2,
            effect_class=effect_class,
            people=("cancel",),
            faults=Faults(crashes=1, redeliveries=1, stale_reads=1, suspicions=1),
        ),
        f"{effect_class}: writes and acks without an answer": Setup(
            executors=2,
            effect_class=effect_class,
            people=("cancel",),
            faults=Faults(lost_acks=1, stale_reads=1, unanswered=1, suspicions=1),
        ),
        f"{effect_class}: a gate, cancel, pause": Setup(
            executors=2,
            effect_class=effect_class,
            gated=1,
            people=("answer", "cancel", "pause"),
            faults=Faults(stale_reads=1),
        ),
    }


BOUNDED: Mapping[str, Setup] = {
    **_PLANNERS,
    **_TOGETHER,
    **{name: setup for each in MUTATING for name, setup in _executors(each).items()},
    "a provider that rejects a used key": Setup(
        executors=2,
        effect_class=EffectClass.RECONCILABLE,
        rejects_used_key=True,
        faults=Faults(crashes=2, suspicions=1, timeouts=1),
    ),
}
BOUNDED_STATES_MAX = 80_000

LARGE: Mapping[str, Setup] = {
    "two inputs, pause, sessions remembered": Setup(planners=2, inputs=2, people=("pause",), remembers=True),
    "a message in two hands, sessions remembered": Setup(
        planners=2, inputs=2, faults=Faults(redeliveries=1), remembers=True
    ),
    "two inputs, reset": Setup(planners=2, inputs=2, people=("reset",)),
    "two inputs, delete": Setup(planners=2, inputs=2, people=("delete",)),
    "two inputs, a message in two hands, old reads": Setup(
        planners=2, inputs=2, faults=Faults(redeliveries=1, stale_reads=1)
    ),
    "a planner dies and comes back, a message in two hands": Setup(
        planners=2, faults=Faults(crashes=1, redeliveries=1)
    ),
    "a planner dies and comes back, writes without an answer": Setup(
        planners=2, faults=Faults(crashes=1, unanswered=1)
    ),
    "two inputs, pause": Setup(planners=2, inputs=2, people=("pause",)),
    "two executors, two commands, a gate, reset": Setup(
        planners=1, executors=2, commands=2, gated=1, people=("answer", "reset")
    ),
    "two executors, three commands, a gate, reset": Setup(
        executors=2, commands=3, gated=1, people=("answer", "reset")
    ),
    "two planners, two executors, two commands, reset": Setup(
        planners=2, executors=2, commands=2, people=("reset",)
    ),
    **{
        f"{each}: three executors, two deaths, a silent owner, late requests": Setup(
            executors=3,
            effect_class=each,
            faults=Faults(crashes=2, redeliveries=1, suspicions=1, timeouts=1),
        )
        for each in MUTATING
    },
    **{
        f"{each}: a gate, cancel, pause, a death": Setup(
            executors=2,
            effect_class=each,
            gated=1,
            people=("answer", "cancel", "pause"),
            faults=Faults(crashes=1, stale_reads=1),
        )
        for each in MUTATING
    },
}
LARGE_STATES_MAX = 3_000_000
