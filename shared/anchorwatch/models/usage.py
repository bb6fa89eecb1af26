"""What a model call used: as reported where the report can be true, else as estimated. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from anchorwatch.core.session.spending import ESTIMATED

CREDIBLE_RATIO = 4.0
"""A report further from our own count, in either direction, measures something else: a day's total, or uncached tokens only."""
BYTES_A_TOKEN = 3
"""Of an answer without a report: fewer than most text has, so that the estimate is rather too high."""
TOKENS_MAX = 10**12


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a model call as the endpoint reported them; None: no report. ``written``: our own estimate of the answer."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    written: int = field(default=0, compare=False)

    def credible(self, counted: int, completion_tokens_max: int) -> Usage:
        """Without the reports that cannot be true. ``counted``: the request by our own count."""
        prompt, completion = self.prompt_tokens, self.completion_tokens
        most = CREDIBLE_RATIO * max(completion_tokens_max, self.written)
        return replace(
            self,
            prompt_tokens=prompt if prompt is not None and is_credible(prompt, counted) else None,
            completion_tokens=completion
            if completion is not None and self.written / CREDIBLE_RATIO <= completion <= most
            else None,
        )

    def recorded(self, counted: int) -> dict[str, int]:
        """For records: a number without a report is estimated, and counted as such. ``counted``: the request by our own count."""
        prompt, completion = self.prompt_tokens, self.completion_tokens
        estimated = (counted if prompt is None else 0) + (self.written if completion is None else 0)
        return {
            "prompt": counted if prompt is None else prompt,
            "completion": self.written if completion is None else completion,
            **({ESTIMATED: estimated} if estimated else {}),
        }


def is_credible(reported: int, counted: int) -> bool:
    """Whether a report may be of the request that we count as ``counted``."""
    return counted > 0 and counted / CREDIBLE_RATIO <= reported <= counted * CREDIBLE_RATIO


def read_usage(reported: object, answer: object = "") -> Usage:
    """The usage that an answer reports. ``answer``: its text, or its message as JSON."""
    numbers: Mapping[str, Any] = reported if isinstance(reported, Mapping) else {}
    return Usage(
        _tokens(numbers.get("prompt_tokens")), _tokens(numbers.get("completion_tokens")), written(answer)
    )


def written(answer: object) -> int:
    """Tokens of an answer, estimated by its length."""
    if not isinstance(answer, str):
        try:
            answer = json.dumps(answer, ensure_ascii=False) if answer else ""
        except (ValueError, RecursionError):
            return 0
    return math.ceil(len(answer.encode("utf-8", "surrogatepass")) / BYTES_A_TOKEN)


def _tokens(value: object) -> int | None:
    return (
        value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < TOKENS_MAX else None
    )
