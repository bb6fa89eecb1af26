"""The port between planner and models: requests, replies and errors. Implemented by `rules` and `openai`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, Protocol, runtime_checkable

from anchorwatch.core.emergency import OpenEmergency
from anchorwatch.core.errors import AnchorWatchError, Unavailable
from anchorwatch.core.facts import Facts, Observation
from anchorwatch.models.usage import Usage

PAST_REMEMBERED, WHOLE_PASTS_REMEMBERED, TOOLS_REMEMBERED = 8_192, 512, 512
"""Sizes of the caches of rendered past turns, conversations and tool sets."""
Chat = Mapping[str, Any]
"""A message in the form of chat.completions."""


class ModelUnavailable(Unavailable):
    """The endpoint gave no usable answer; a retry may succeed. ``retry_after_s``: as sent by the endpoint.

    ``usage``: of an answer that was discarded; None: there was no answer.
    """

    code = "model_unavailable"
    usage: Usage | None = None

    def __init__(
        self, message: str | None = None, *, hint: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class ModelRefused(AnchorWatchError):
    """The endpoint refuses this request permanently (bad key, unknown model, bad request).

    ``lasting``: and every other request, until a person changes something. ``usage``: as of `ModelUnavailable`.
    """

    code = "model_refused"
    usage: Usage | None = None

    def __init__(self, message: str | None = None, *, hint: str = "", lasting: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.lasting = lasting


class ContextOverflow(AnchorWatchError):
    """The endpoint refuses the request as larger than its context.

    ``tokens``: its own count of the request, ``limit``: its limit, answer included; None: not stated.
    """

    code = "context_overflow"
    usage: Usage | None = None
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
    """The request exceeds the known limit of its endpoint and was not sent."""


@dataclass(frozen=True, slots=True)
class ProposedCall:
    """A tool call that a model proposes. ``label`` is the model's own id: a label, never an identity.

    ``arguments`` is None when the model sent something other than a JSON object, or its answer was truncated. Then ``raw``
    (at most 800 characters) and ``problem`` describe it, and the call is answered with an error and never
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
    """A call of this turn with its result. ``state``: succeeded, failed, refused, unknown, or rejected (never dispatched)."""

    name: str
    arguments: Mapping[str, Any]
    state: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Situation:
    """The input of rules: the content of the prompt, structured.

    ``facts``: those of the anchor, which the pack chose at the end of the last turn; the current ones are ``observation.facts``.
    ``wakes``: kinds and texts of the inputs that this turn took, such as {"kind": "event", "source", "type", "text"}.
    ``steps``: the calls of the earlier steps of this turn, a tuple for each step.
    ``emergency``: the open one; the observation need not show it.
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
    emergency: OpenEmergency | None = None


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request. ``messages`` and ``tools`` are in the form of chat.completions; exactly this is counted.

    Most of a request repeats the previous one. So each past turn is one tuple of messages, the same object in every later
    request, and so is ``tools``: caches work by identity.
    """

    now: tuple[Chat, ...]
    tools: tuple[Mapping[str, Any], ...]
    situation: Situation
    opening: tuple[Chat, ...] = ()
    past: tuple[tuple[Chat, ...], ...] = ()

    @property
    def messages(self) -> tuple[Chat, ...]:
        """All messages, in order: the opening, the past turns, and this turn."""
        return (*self.opening, *chain.from_iterable(self.past), *self.now)


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A validated answer. ``model``: as the endpoint names it. ``finish``: ``length`` whenever the answer was truncated."""

    decision: StepDecision
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    finish: str = ""


@dataclass(frozen=True, slots=True)
class Retry:
    """A failed attempt that another one follows. ``attempt``: the next one, from 2; ``wait_s``: the delay before it."""

    attempt: int
    fault: ModelUnavailable
    wait_s: float


OnRetry = Callable[[Retry], Awaitable[None]]
"""Called before the delay. It may raise, which ends the call."""


async def ignore(retry: Retry) -> None:
    """An `OnRetry` that does nothing."""


class Model(Protocol):
    """A model."""

    @property
    def name(self) -> str: ...
    @property
    def is_llm(self) -> bool:
        """False for `rules`: no language model is involved, and every view says so."""
        ...

    def count(self, request: ModelRequest) -> int:
        """Tokens of the request exactly as sent."""
        ...

    async def complete(
        self, request: ModelRequest, deadline_s: float, on_retry: OnRetry = ignore
    ) -> ModelReply:
        """Complete once, with bounded retries of transient errors within ``deadline_s``.

        Raises:
            ModelUnavailable, ModelRefused, ContextOverflow; and whatever ``on_retry`` raises.
        """
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Measures(Protocol):
    """A model that can measure a request before it is sent."""

    async def measure(self, request: ModelRequest) -> int | None:
        """Tokens of the request by the endpoint's own count; None: unknown."""
        ...
