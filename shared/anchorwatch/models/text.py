"""Text that may be sent, stored and shown: no lone surrogates, no NUL, bounded, and without secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
BRIEF_CHARS_MAX = 300

# What looks like a credential is hidden even when it is not ours: an endpoint may echo what a proxy added.
_CREDENTIAL = re.compile(r"\b(?:sk|pk|rk|hf|gsk|xai|key)[-_][A-Za-z0-9_\-]{8,}|(?i:\bbearer\s+)[^\s\"',;]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
HIDDEN = "[hidden]"
SECRET_CHARS_MIN = 12


def clean(text: str) -> str:
    """The text with each NUL and each lone surrogate replaced: UTF-8, SQLite and many servers accept neither."""
    if "\0" in text:
        text = text.replace("\0", REPLACEMENT)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # By way of UTF-16, so that two halves of one character become it again.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_json(value: Any) -> Any:  # noqa: ANN401 - JSON is of any type
    """The JSON value with each string and each key cleaned; tuples become lists, mappings dicts."""
    match value:
        case str():
            return clean(value)
        case Mapping():
            return {clean(str(key)): clean_json(item) for key, item in value.items()}
        case list() | tuple():
            return [clean_json(item) for item in value]
        case _:
            return value


def without(content: bytes, secret: str) -> bytes:
    """JSON with every occurrence of ``secret`` removed.

    A secret of fewer than `SECRET_CHARS_MIN` characters stays: it is a placeholder for a server without keys.
    """
    if len(secret) < SECRET_CHARS_MIN:
        return content
    # As plain text, and as escaped in a JSON string.
    for form in (secret, json.dumps(secret)[1:-1]):
        content = content.replace(form.encode(), HIDDEN.encode())
    return content


def brief(text: str, chars_max: int = BRIEF_CHARS_MAX) -> str:
    """One line of at most ``chars_max`` characters, for error texts and logs."""
    # Truncate first: do not scan a body of many megabytes.
    line = _CONTROL.sub(" ", clean(text[: 4 * chars_max])).strip()
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"


def redact(text: str, secret: str = "") -> str:
    """The text without ``secret`` and without what looks like a credential."""
    if secret:
        text = text.replace(secret, HIDDEN)
    return _CREDENTIAL.sub(HIDDEN, text)
