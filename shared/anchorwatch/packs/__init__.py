"""The public module for authors of packs: everything that a pack needs of Anchor Watch.

A pack implements `Pack` and `PackRuntime`, describes its tools with `ToolSpec`, and raises the errors listed here.
Optional protocols: `HasStarter`, `HasHealth`, `HasExercise`, `HasBooks`, `JudgesProgress`.

    >>> from anchorwatch.packs import EffectClass, ToolSpec
    >>> ToolSpec("ping", "Ping a host.", {"type": "object"}, EffectClass.READ).pool
    'default'

Names are imported on first use, so that a small process does not pay for what it does not use.
Other modules of `anchorwatch` are internal and may change in any release.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anchorwatch.bus.jetstream import connect
    from anchorwatch.bus.port import (
        Bus,
        Consumer,
        ConsumerSpec,
        Delivery,
        Expect,
        Message,
        StreamMissing,
        Subscription,
        WrongLastSequence,
    )
    from anchorwatch.core.agents import AgentSpec
    from anchorwatch.core.bounds import within
    from anchorwatch.core.emergency import Emergency, OpenEmergency, Sighting
    from anchorwatch.core.errors import AnchorWatchError, BadInput, Conflict, NotFound, Refused, Unavailable
    from anchorwatch.core.facts import UNKNOWN, Fact, Facts, Observation
    from anchorwatch.core.faults import place_of, problem_of
    from anchorwatch.core.names import check_token
    from anchorwatch.core.times import instant
    from anchorwatch.core.tools import EffectClass, Invariant, Risk, ToolSpec
    from anchorwatch.models.port import PastCall, ProposedCall, Situation, StepDecision
    from anchorwatch.packs.next_check import next_check_tool, schedule_next_check
    from anchorwatch.packs.port import (
        Artifact,
        HasBooks,
        HasExercise,
        HasHealth,
        HasStarter,
        JudgesProgress,
        NeverDone,
        OutcomeUnknown,
        Pack,
        PackEnvironment,
        PackRuntime,
        Probed,
        Reconciled,
        Starter,
        Stimulus,
        ToolContext,
        ToolFailed,
        ToolResult,
    )
    from anchorwatch.settings import Settings
    from anchorwatch.topology.streams import KIB, StreamSpec
    from anchorwatch.topology.subjects import Subject

_MODULES = {
    "anchorwatch.bus.jetstream": "connect",
    "anchorwatch.bus.port": (
        "Bus Consumer ConsumerSpec Delivery Expect Message StreamMissing Subscription WrongLastSequence"
    ),
    "anchorwatch.core.agents": "AgentSpec",
    "anchorwatch.core.bounds": "within",
    "anchorwatch.core.emergency": "Emergency OpenEmergency Sighting",
    "anchorwatch.core.errors": "AnchorWatchError BadInput Conflict NotFound Refused Unavailable",
    "anchorwatch.core.facts": "UNKNOWN Fact Facts Observation",
    "anchorwatch.core.faults": "place_of problem_of",
    "anchorwatch.core.names": "check_token",
    "anchorwatch.core.times": "instant",
    "anchorwatch.core.tools": "EffectClass Invariant Risk ToolSpec",
    "anchorwatch.models.port": "PastCall ProposedCall Situation StepDecision",
    "anchorwatch.packs.next_check": "next_check_tool schedule_next_check",
    "anchorwatch.packs.port": (
        "Artifact HasBooks HasExercise HasHealth HasStarter JudgesProgress NeverDone OutcomeUnknown Pack PackEnvironment "
        "PackRuntime Probed Reconciled Starter Stimulus ToolContext ToolFailed ToolResult"
    ),
    "anchorwatch.settings": "Settings",
    "anchorwatch.topology.streams": "KIB StreamSpec",
    "anchorwatch.topology.subjects": "Subject",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "KIB",
    "UNKNOWN",
    "AgentSpec",
    "AnchorWatchError",
    "Artifact",
    "BadInput",
    "Bus",
    "Conflict",
    "Consumer",
    "ConsumerSpec",
    "Delivery",
    "EffectClass",
    "Emergency",
    "Expect",
    "Fact",
    "Facts",
    "HasBooks",
    "HasExercise",
    "HasHealth",
    "HasStarter",
    "Invariant",
    "JudgesProgress",
    "Message",
    "NeverDone",
    "NotFound",
    "Observation",
    "OpenEmergency",
    "OutcomeUnknown",
    "Pack",
    "PackEnvironment",
    "PackRuntime",
    "PastCall",
    "Probed",
    "ProposedCall",
    "Reconciled",
    "Refused",
    "Risk",
    "Settings",
    "Sighting",
    "Situation",
    "Starter",
    "StepDecision",
    "Stimulus",
    "StreamMissing",
    "StreamSpec",
    "Subject",
    "Subscription",
    "ToolContext",
    "ToolFailed",
    "ToolResult",
    "ToolSpec",
    "Unavailable",
    "WrongLastSequence",
    "check_token",
    "connect",
    "instant",
    "next_check_tool",
    "place_of",
    "problem_of",
    "schedule_next_check",
    "within",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - each name has its own type, above
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value
