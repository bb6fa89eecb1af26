"""Lines of a person's message that start with `CRITICAL:` are kept in every later prompt (INV-601)."""

from __future__ import annotations

CRITICAL = "CRITICAL:"


def is_critical(line: str) -> bool:
    """Whether a line is labelled."""
    return line.lstrip().startswith(CRITICAL)


def critical_lines(text: str) -> list[str]:
    """The labelled lines of a text, verbatim."""
    return [line.strip() for line in text.splitlines() if is_critical(line)]
