"""Profiles: how an endpoint differs from other chat.completions endpoints.

Two are included: `openai`, and `json-schema` for small models that do not call tools natively. Any other is a TOML file
with the fields below; ``anchorwatch models probe URL`` prints one.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from anchorwatch.core.agents import CONTEXT_TOKENS_MAX
from anchorwatch.core.errors import BadSettings
from anchorwatch.core.faults import place_of, problem_of

RESERVED = frozenset({
    "model", "messages", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "response_format",
    "stream", "stream_options", "max_tokens", "max_completion_tokens", "n",
})  # fmt: skip
"""Fields that a request sets itself; `Profile.extra` must not."""
_HINT = "write `openai`, `json-schema`, or the path of a TOML file; `anchorwatch models probe URL` prints one"


class Profile(BaseModel):
    """The behaviour of an endpoint. The defaults suit most endpoints."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field("custom", min_length=1, max_length=64, description="display name")
    calls: Literal["native", "json-schema"] = Field(
        "native",
        description="how tools are called: native tool calls, or an answer that is JSON of a schema",
    )
    json_form: Literal["json_schema", "json_object"] = Field(
        "json_schema",
        description="how the answer's schema is sent: as OpenAI does, or as `json_object` with a `schema`",
    )
    parallel: bool = Field(
        default=True, description="several calls in one step; false: one at a time, further calls are refused"
    )
    null_content: bool = Field(
        default=False,
        description="an answer without text is sent back as `content: null`; false: as empty text",
    )
    alternate: bool = Field(
        default=False,
        description="user and assistant messages must alternate; consecutive ones are merged",
    )
    bounds: bool = Field(
        default=True,
        description="tool schemas are sent with lengths, ranges and patterns; false: without, because some grammars fail on them",
    )
    reasoning_field: str = Field(
        "", max_length=64, description="the field with a model's thinking; it is never sent back"
    )
    overflow: Literal["code", "type", "text", "silent"] = Field(
        "code",
        description="how it refuses a too large request: a code, a type with counts, text only, or not at all",
    )
    overflow_words: str = Field(
        "", max_length=200, description="the text of that refusal, if it is not a known one"
    )
    context_tokens: int = Field(
        0,
        ge=0,
        le=CONTEXT_TOKENS_MAX,
        description="limit of request and answer together, in tokens; 0: unknown",
    )
    counter: Literal["estimate", "tokenize", "input-tokens"] = Field(
        "estimate",
        description="which counter decides: ours, its `/tokenize`, or its `/chat/completions/input_tokens`",
    )
    limit_field: Literal["auto", "max_tokens", "max_completion_tokens"] = Field(
        "auto", description="its field for the longest answer; auto: by the host"
    )
    stream: bool = Field(
        default=False,
        description="answers are streamed, so that a stall is noticed early",
    )
    stream_usage: bool = Field(default=True, description="usage is requested of a stream (`stream_options`)")
    extra: dict[str, Any] = Field(default_factory=dict, description="further request fields, sent unchanged")

    @field_validator("extra")
    @classmethod
    def _not_reserved(cls, value: dict[str, Any]) -> dict[str, Any]:
        taken = sorted(RESERVED & value.keys())
        if taken:
            raise ValueError(f"{taken[0]!r} is set by the request itself")
        return value

    @model_validator(mode="after")
    def _known_size(self) -> Profile:
        if self.overflow == "silent" and not self.context_tokens:
            raise ValueError('overflow = "silent" requires context_tokens: the endpoint\'s limit')
        return self


OPENAI = Profile(name="openai")
JSON_SCHEMA = Profile(name="json-schema", calls="json-schema", parallel=False)
SHIPPED = {profile.name: profile for profile in (OPENAI, JSON_SCHEMA)}


def find(name: str) -> Profile:
    """An included profile by its name, or the one in a TOML file by its path.

    Raises:
        BadSettings: the profile is unknown or invalid; every error is named.
    """
    known = SHIPPED.get(name.strip())
    if known is not None:
        return known
    path = Path(name.strip())
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise BadSettings(
            f"unknown profile {name[:200]!r}: not an included profile and not a file", hint=_HINT
        ) from None
    except (OSError, ValueError) as error:
        raise BadSettings(f"the profile {path} cannot be read: {error}", hint=_HINT) from None
    return read(value, str(path))


def read(value: dict[str, Any], place: str) -> Profile:
    """The profile that TOML holds. ``place``: its origin, for errors.

    Raises:
        BadSettings: it is invalid; every error is named.
    """
    try:
        return Profile.model_validate(value)
    except ValidationError as error:
        faults = "; ".join(
            f"{place_of(fault, 'the profile')} {problem_of(fault)}"
            for fault in error.errors(include_url=False)
        )
        raise BadSettings(
            f"{place}: {faults}", hint=f"known fields: {', '.join(Profile.model_fields)}"
        ) from None
