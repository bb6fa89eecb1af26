"""The specification of a tool: effect class, risk, limits and schema. The pack runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class EffectClass(StrEnum):
    """What the executor may do with a command whose outcome is unknown.

    - ``read``: run it again.
    - ``idempotent``: the provider honours the effect key; claim again, run again with the same key.
    - ``reconcilable``: ask the provider whether the effect key took effect.
    - ``irreversible``: nothing; the outcome stays unknown until a person settles it.
    """

    READ = "read"
    IDEMPOTENT = "idempotent"
    RECONCILABLE = "reconcilable"
    IRREVERSIBLE = "irreversible"


class Risk(StrEnum):
    """The possible harm of a call: ``none`` changes nothing, ``low`` is easily undone, ``high`` is not."""

    NONE = "none"
    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the planner offers it and the executor judges it.

    ``parameters`` is a JSON schema object. ``pool`` names the executors that run it.
    ``observation_age_max_s``: a mutating call must cite an observation no older than this (`inf`: none is
    needed). ``ephemeral``: the result is not used after a resume.
    ``intent`` returns the verb of a call with these arguments; None: the tool's name. Calls of a turn with the same
    intent and resource differ by their order only. It is pure and must accept any arguments. ``example``: valid
    arguments, shown with the description: small models follow an example better than a schema.
    """

    name: str
    description: str
    parameters: Mapping[str, object]
    effect_class: EffectClass = EffectClass.IRREVERSIBLE
    risk: Risk = Risk.HIGH
    pool: str = "default"
    timeout_s: float = 30.0
    settle_s: float = 10.0
    observation_age_max_s: float = 120.0
    ephemeral: bool = False
    intent: Callable[[Mapping[str, object]], str] | None = None
    example: Mapping[str, object] | None = None

    @property
    def mutating(self) -> bool:
        return self.effect_class is not EffectClass.READ


@dataclass(frozen=True, slots=True)
class Invariant:
    """A rule over ``command``, ``facts`` (the anchor's) and ``observation`` (its facts), in CEL; false refuses.

    ``tools``: those it applies to. ``needs``: observation facts that must be known; an unknown one refuses.
    ``when``: CEL over the command alone; the rule applies only where it is true (empty: always).
    """

    name: str
    tools: tuple[str, ...]
    rule: str
    needs: tuple[str, ...] = ()
    when: str = ""
    message: str = ""
