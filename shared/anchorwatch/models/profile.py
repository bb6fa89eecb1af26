"""How an endpoint differs from the others that speak chat.completions: said once, in a profile.

Two are shipped: `openai`, and `json-schema` for small models that do not call tools by themselves. Any other is a TOML file
with the fields below, such as ``anchorwatch models probe URL`` prints.
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
"""What a request says by itself; `Profile.extra` may not."""
_HINT = "write `openai`, `json-schema`, or the path of a TOML file; `anchorwatch models probe URL` prints one"


class Profile(BaseModel):
    """How an endpoint behaves, and what it is therefore sent. The defaults are what most endpoints take."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field("custom", min_length=1, max_length=64, description="what people call it")
    calls: Literal["native", "json-schema"] = Field(
        "native",
        description="how tools are called: by the endpoint's own tool calls, or by an answer that is JSON of a schema",
    )
    json_form: Literal["json_schema", "json_object"] = Field(
        "json_schema",
        description="how the schema of an answer is asked for: as OpenAI does, or as `json_object` with a `schema`",
    )
    parallel: bool = Field(
        default=True, description="several calls in one step; false: one at a time, and more are refused"
    )
    null_content: bool = Field(
        default=False,
        description="an answer without words goes back as `content: null`; false: as empty text",
    )
    alternate: bool = Field(
        default=False,
        description="messages of people and of the model must take turns: those of one side in a row go as one",
    )
    bounds: bool = Field(
        default=True,
        description="tool schemas go with lengths, ranges and patterns; false: without, since some grammars fail on them",
    )
    reasoning_field: str = Field(
        "", max_length=64, description="where the endpoint puts a model's thinking; it is never sent back"
    )
    overflow: Literal["code", "type", "text", "silent"] = Field(
        "code",
        description="how it says that a request is too large: a code, a type with counts, words alone, or not at all",
    )
    overflow_words: str = Field(
        "", max_length=200, description="words of that refusal, where they are none of the known ones"
    )
    context_tokens: int = Field(
        0,
        ge=0,
        le=CONTEXT_TOKENS_MAX,
        description="request and answer together never have more; 0: not known",
    )
    counter: Literal["estimate", "tokenize", "input-tokens"] = Field(
        "estimate",
        description="who counts: we, its `/tokenize`, or its `/chat/completions/input_tokens`",
    )
    limit_field: Literal["auto", "max_tokens", "max_completion_tokens"] = Field(
        "auto", description="how it calls the longest answer; auto: by the host"
    )
    stream: bool = Field(
        default=False,
        description="answers are streamed, so that one that stalls is seen before the last second",
    )
    stream_usage: bool = Field(default=True, description="a stream is asked for its usage (`stream_options`)")
    extra: dict[str, Any] = Field(
        default_factory=dict, description="more fields of each request, sent as they are"
    )

    @field_validator("extra")
    @classmethod
    def _not_reserved(cls, value: dict[str, Any]) -> dict[str, Any]:
        taken = sorted(RESERVED & value.keys())
        if taken:
            raise ValueError(f"{taken[0]!r} is said by the request itself")
        return value

    @model_validator(mode="after")
    def _known_size(self) -> Profile:
        if self.overflow == "silent" and not self.context_tokens:
            raise ValueError(
                "an endpoint that cuts requests without a word needs context_tokens: how many it takes"
            )
        return self


OPENAI = Profile(name="openai")
JSON_SCHEMA = Profile(name="json-schema", calls="json-schema", parallel=False)
SHIPPED = {profile.name: profile for profile in (OPENAI, JSON_SCHEMA)}


def find(name: str) -> Profile:
    """A shipped profile by its name, or the one in a TOML file by its path.

    Raises:
        BadSettings: there is none, or the file holds none; every fault of it is named.
    """
    known = SHIPPED.get(name.strip())
    if known is not None:
        return known
    path = Path(name.strip())
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise BadSettings(
            f"there is no profile {name[:200]!r}, and no file of that name", hint=_HINT
        ) from None
    except (OSError, ValueError) as error:
        raise BadSettings(f"the profile {path} cannot be read: {error}", hint=_HINT) from None
    return read(value, str(path))


def read(value: dict[str, Any], place: str) -> Profile:
    """The profile that TOML holds. ``place``: where it stands, for errors.

    Raises:
        BadSettings: it holds none; every fault is named.
    """
    try:
        return Profile.model_validate(value)
    except ValidationError as error:
        faults = "; ".join(
            f"{place_of(fault, 'the profile')} {problem_of(fault)}"
            for fault in error.errors(include_url=False)
        )
        raise BadSettings(
            f"{place}: {faults}", hint=f"a profile has {', '.join(Profile.model_fields)}"
        ) from None
