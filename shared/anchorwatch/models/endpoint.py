"""Address, behaviour and timeouts of a model endpoint."""

from __future__ import annotations

from dataclasses import dataclass

from anchorwatch.models.profile import OPENAI, Profile
from anchorwatch.models.text import redact


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts of an endpoint, in seconds. ``total_s`` includes retries and their delays.

    ``first_token_s`` and ``between_tokens_s`` apply to streamed answers only: a whole answer shows nothing before its end.
    """

    connect_s: float = 10.0
    first_token_s: float = 60.0
    between_tokens_s: float = 30.0
    total_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address and request parameters of a model. ``limit_field``: the endpoint's name for the longest answer."""

    url: str
    model: str
    key: str = ""
    completion_tokens_max: int = 4096
    limit_field: str = "max_tokens"
    profile: Profile = OPENAI
    patience: Patience = Patience()

    @property
    def place(self) -> str:
        """Its name in errors."""
        return f"the model endpoint {self.url}"

    def redact(self, text: str) -> str:
        """The text without the key."""
        return redact(text, self.key)

    def __repr__(self) -> str:
        return f"Endpoint({self.model} at {self.url})"
