"""``anchorwatch models probe``: ask an endpoint how it behaves, and print its profile."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from anchorwatch.cli.render import one_line
from anchorwatch.core.errors import BadInput
from anchorwatch.models.probe import Probe, Report
from anchorwatch.models.probe_client import Client
from anchorwatch.models.profile import Profile
from anchorwatch.settings import load

CHARS_MAX = 300


@dataclass(frozen=True, slots=True)
class Wish:
    """The verb's options."""

    url: str
    model: str
    key: str | None
    key_file: Path | None
    timeout_s: float
    overflow_tokens: int | None


def run(wish: Wish, *, as_json: bool) -> int:
    """Ask, and print; returns the exit code, 1 where the endpoint can call no tools.

    Raises:
        BadInput, Unavailable, Denied, NotFound: see `Probe.run`.
    """
    report = asyncio.run(_ask(wish))
    print(json.dumps(_as_json(report), indent=2, ensure_ascii=False) if as_json else toml(report))
    if report.problem:
        sys.stderr.write(f"anchorwatch: {report.problem} (another model of this endpoint may)\n")
    return 1 if report.problem else 0


async def _ask(wish: Wish) -> Report:
    client = Client(wish.url, _key(wish), wish.timeout_s)
    host = urlsplit(client.url).netloc
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", host)[:64]
    try:
        return await Probe(client, wish.model, wish.overflow_tokens, name).run()
    finally:
        await client.close()


def _key(wish: Wish) -> str:
    if wish.key is not None and wish.key_file is not None:
        raise BadInput("--key and --key-file give two keys", hint="give one of them")
    if wish.key_file is not None:
        try:
            key = wish.key_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise BadInput(f"{wish.key_file} cannot be read", hint="give a file that holds the key") from None
    elif wish.key is not None:
        key = wish.key.strip()
    else:
        settings = load()
        # A key is for the endpoint that it was given for, and for no other.
        same = settings.model_url.strip().rstrip("/") == wish.url.strip().rstrip("/")
        key = settings.model_key.get_secret_value().strip() if settings.model_key and same else ""
    if not re.fullmatch(r"[\x21-\x7e]*", key):
        raise BadInput(
            "the key has a character that is not valid in an HTTP header",
            hint="give the key alone, without quotes",
        )
    return key


def toml(report: Report) -> str:
    """The profile as a TOML file, with what was found as its comment."""
    lines = [f"# {report.url}, model {report.model}"]
    lines += [f"#   {each.question}: {one_line(each.answer, CHARS_MAX)}" for each in report.findings]
    lines += [f"# PROBLEM: {report.problem}"] if report.problem else []
    lines += [
        f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in _said(report.profile).items()
    ]
    lines += [
        "# Save this as a file, and set",
        "#   ANCHORWATCH_MODEL=openai",
        f"#   ANCHORWATCH_MODEL_URL={report.url}",
        f"#   ANCHORWATCH_MODEL_NAME={report.model}",
        "#   ANCHORWATCH_MODEL_PROFILE=<the file>",
    ]
    if report.profile.context_tokens:
        tokens = report.profile.context_tokens
        lines.append(f"#   ANCHORWATCH_CONTEXT_TOKENS_MAX: with the longest answer at most {tokens}")
    return "\n".join(lines)


def _said(profile: Profile) -> dict[str, Any]:
    """What is worth saying: the fields that differ from the defaults, and those that people look for."""
    always = ("name", "calls", "parallel", "null_content", "overflow", "counter", "stream")
    values = profile.model_dump(exclude={"extra"})
    defaults = Profile().model_dump()
    return {name: value for name, value in values.items() if name in always or value != defaults[name]}


def _as_json(report: Report) -> dict[str, Any]:
    return {
        "url": report.url,
        "model": report.model,
        "profile": report.profile.model_dump(),
        "findings": {each.question: each.answer for each in report.findings},
        "problem": report.problem,
    }
