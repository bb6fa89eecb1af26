"""Labelled facts: what a person says holds for good. One is one line that begins with the label, and it ends with that line."""

from __future__ import annotations

CRITICAL = "CRITICAL:"


def is_critical(line: str) -> bool:
    """Whether a line of a person's message is a labelled fact."""
    return line.lstrip().startswith(CRITICAL)


def critical_lines(text: str) -> list[str]:
    """The labelled facts of a text, word for word."""
    return [line.strip() for line in text.splitlines() if is_critical(line)]
