"""What the planner asks of a model, and what it gets back. Pure data; `rules` and `openai` answer it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, Protocol, runtime_checkable

from anchorwatch.core.errors import AnchorWatchError, Unavailable
from anchorwatch.core.facts import Facts, Observation

PAST_REMEMBERED, WHOLE_PASTS_REMEMBERED, TOOLS_REMEMBERED = 8_192, 512, 512
"""On how many turns of the past, conversations, and sets of tools, whoever works on requests remembers its work."""
Chat = Mapping[str, Any]
"""A message in the form of chat.completions."""


class ModelUnavailable(Unavailable):
    """The model's endpoint did not give a usable answer; trying again may help. ``retry_after_s``: as the endpoint said."""

    code = "model_unavailable"

    def __init__(
        self, message: str | None = None, *, hint: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class ModelRefused(AnchorWatchError):
    """The endpoint will not answer this request however often it is sent (bad key, unknown model, bad request).

    ``lasting``: nor any other, until somebody changes something.
    """

    code = "model_refused"

    def __init__(self, message: str | None = None, *, hint: str = "", lasting: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.lasting = lasting


class ContextOverflow(AnchorWatchError):
    """The endpoint says that the request is larger than its context.

    ``tokens``: its own count of the request, ``limit``: what it takes, answer included; None: it did not say.
    """

    code = "context_overflow"
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str | None = None,
        *,
        hint: str = "",
        tokens: int | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.tokens = tokens
        self.limit = limit


class TooLargeToSend(ContextOverflow):
    """The request is larger than what its endpoint is known to take, and was not sent."""


@dataclass(frozen=True, slots=True)
class ProposedCall:
    """A tool call that a model asks for. ``label`` is the model's own id: a label, never an identity.

    ``arguments`` is None when what the model sent is not a JSON object, or its answer was cut; then ``raw``
    (at most 800 characters) and ``problem`` say what it was, and the call is answered with an error, never
    run.
    """

    name: str
    arguments: Mapping[str, Any] | None
    label: str = ""
    raw: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class StepDecision:
    """What a model decided: text, calls, or both. No calls: the turn ends with the text."""

    text: str = ""
    calls: tuple[ProposedCall, ...] = ()


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call of this turn with what came of it: ``state`` succeeded, failed, refused, unknown, or rejected (never dispatched)."""

    name: str
    arguments: Mapping[str, Any]
    state: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Situation:
    """What rules decide on: the same things that the prompt shows a model, structured.

    ``wakes``: kinds and texts of the inputs that this turn took, such as {"kind": "event", "source", "type", "text"}.
    ``steps``: the calls of the earlier steps of this turn, a tuple for each step.
    """

    run_id: int
    facts: Facts
    observation: Observation
    wakes: Sequence[Mapping[str, Any]]
    steps: Sequence[Sequence[PastCall]]
    objectives: Sequence[str]
    constraints: Sequence[str]
    limits: Mapping[str, Any]
    heartbeat_s: float


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request. ``messages`` and ``tools`` are in the form of chat.completions; what is counted is exactly this.

    Most of a request is what the one before had too. So the turns that are over stand apart, each as one tuple of messages which
    later requests hold again: the very same, unchanged. So it is with ``tools``.
    """

    now: tuple[Chat, ...]
    tools: tuple[Mapping[str, Any], ...]
    situation: Situation
    opening: tuple[Chat, ...] = ()
    past: tuple[tuple[Chat, ...], ...] = ()

    @property
    def messages(self) -> tuple[Chat, ...]:
        """All messages, in order: the opening, the past, and what this turn is about."""
        return (*self.opening, *chain.from_iterable(self.past), *self.now)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the endpoint reported them; None when it said nothing."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    def known(self) -> dict[str, int]:
        """What was reported, by the names that records have: ``prompt``, ``completion``."""
        counts = {"prompt": self.prompt_tokens, "completion": self.completion_tokens}
        return {name: count for name, count in counts.items() if count is not None}


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A validated answer. ``model`` is what the endpoint says it was; ``finish`` is ``length`` whenever the answer was cut."""

    decision: StepDecision
    usage: Usage = Usage()
    model: str = ""
    finish: str = ""


class Model(Protocol):
    """A model behind one endpoint."""

    @property
    def name(self) -> str: ...
    @property
    def is_llm(self) -> bool:
        """False for `rules`: no language model is involved, and people are told so."""
        ...

    def count(self, request: ModelRequest) -> int:
        """Tokens of the request exactly as it is sent."""
        ...

    async def complete(self, request: ModelRequest, deadline_s: float) -> ModelReply:
        """Ask once, with bounded retries of passing faults inside ``deadline_s``.

        Raises:
            ModelUnavailable, ModelRefused, ContextOverflow
        """
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Measures(Protocol):
    """A model that can be asked for the size of a request before it is sent."""

    async def measure(self, request: ModelRequest) -> int | None:
        """Tokens of the request by the endpoint's own count; None: it did not say."""
        ...
