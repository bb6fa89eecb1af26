"""Removes a model's thinking from its answer.

Servers that do not separate it leave ``<think>…</think>`` in the text. Where the chat template has already opened the
block, only ``</think>`` appears; where the answer was truncated, only ``<think>``. A tag that is mentioned in code or in
quotes is text like any other.
"""

from __future__ import annotations

import re

_OPEN = r"<think(?:ing)?>"
_CLOSE = r"</think(?:ing)?>"
_QUOTED = rf"(?P<quote>[\"'`]){_OPEN}(?P=quote)|(?P<quote2>[\"'`]){_CLOSE}(?P=quote2)"

# What text is made of, as far as tags matter. The order matters: a mention is tried before a tag.
_IN_TEXT = re.compile(
    rf"(?P<mention>```.*?```|`[^`\n]+`|{_QUOTED})|(?P<open>{_OPEN})|(?P<close>{_CLOSE})",
    re.DOTALL | re.IGNORECASE,
)
# Thinking is unfinished prose: a lone back-quote in it must not hide its end. Only a tag that is itself quoted is a mention.
_IN_THOUGHT = re.compile(rf"(?P<mention>{_QUOTED})|(?P<close>{_CLOSE})", re.IGNORECASE)


def strip_thinking(text: str) -> str:
    """The text without its thinking, without white space around it."""
    if "<think" not in text.lower() and "</think" not in text.lower():
        return text.strip()
    kept: list[str] = []
    at = 0
    thinking = False
    start = 0
    while found := (_IN_THOUGHT if thinking else _IN_TEXT).search(text, at):
        at = found.end()
        if found["mention"] is not None:
            continue
        if thinking:
            thinking = False
        elif found["close"] is not None:
            # The template opened the block: everything so far is thinking.
            kept.clear()
        else:
            kept.append(text[start : found.start()])
            thinking = True
        start = at
    if not thinking:
        kept.append(text[start:])
    return "".join(kept).strip()
