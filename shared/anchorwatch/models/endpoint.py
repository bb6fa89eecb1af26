"""Where a model is, how it behaves, and how long it is waited for."""

from __future__ import annotations

from dataclasses import dataclass

from anchorwatch.models.profile import OPENAI, Profile
from anchorwatch.models.text import redact


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an endpoint is waited for, in seconds. ``total_s`` covers retries and their waits.

    ``first_token_s`` and ``between_tokens_s`` bound streamed answers alone: of a whole answer nothing is seen before its end.
    """

    connect_s: float = 10.0
    first_token_s: float = 60.0
    between_tokens_s: float = 30.0
    total_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is, and what is asked of it. ``limit_field``: how the endpoint calls the longest answer."""

    url: str
    model: str
    key: str = ""
    completion_tokens_max: int = 4096
    limit_field: str = "max_tokens"
    profile: Profile = OPENAI
    patience: Patience = Patience()

    @property
    def place(self) -> str:
        """What errors call it."""
        return f"the model endpoint {self.url}"

    def redact(self, text: str) -> str:
        """The text without the key."""
        return redact(text, self.key)

    def __repr__(self) -> str:
        return f"Endpoint({self.model} at {self.url})"
