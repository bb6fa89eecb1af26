"""What was done in the world, as it counts there, beside what the journal says of it."""

from __future__ import annotations

from collections.abc import Iterator

from anchorwatch.core.effect.state import Outcome
from anchorwatch.core.tools import EffectClass
from anchorwatch.journal.history import Command, History
from anchorwatch.testing.checks.evidence import Call, Evidence, Violation

OWNER_DIED = "owner_died"


def check_effects(evidence: Evidence) -> Iterator[Violation]:
    """Each command with an effect: done at most once, and its outcome is what happened."""
    for command in evidence.history.commands:
        effect_class = evidence.classes.get(command.decided.tool, EffectClass.READ)
        if effect_class is EffectClass.READ:
            continue
        key = _key(evidence.history, command)
        call = evidence.calls.get(key, Call(key))
        where = f"{command.decided.tool} {command.call} ({key})"
        yield from _twice(where, effect_class, call)
        done = evidence.history.outcome_of(command.call)
        if done is not None:
            yield from _told(where, call, done.outcome, _owners(evidence.history, command))
    yield from _unasked(evidence)


def _twice(where: str, effect_class: EffectClass, call: Call) -> Iterator[Violation]:
    if effect_class is EffectClass.IRREVERSIBLE and call.begun > 1:
        yield Violation("duplicated", f"{where} is irreversible, and was started {call.begun} times")
    if call.done is not None and call.done > 1:
        yield Violation("duplicated", f"{where} was done {call.done} times")


def _told(where: str, call: Call, outcome: Outcome, owners: int) -> Iterator[Violation]:
    match outcome.state:
        case "succeeded" if call.done == 0:
            yield Violation("guessed", f"{where} is said to have succeeded, and was not done")
        case "failed" | "refused" if call.done:
            yield Violation("guessed", f"{where} is said to be {outcome.state}, and was done")
        case "refused" if call.begun:
            yield Violation("guessed", f"{where} is said to be refused, and was started")
        case "unknown" if owners <= 1 and outcome.error != OWNER_DIED and _is_certain(call):
            yield Violation(
                "guessed", f"{where} is said to be unknown, though its executor lived to see its end"
            )
        case _:
            pass


def _is_certain(call: Call) -> bool:
    """Whether every start came to an end that leaves no doubt."""
    return call.begun > 0 and len(call.ended) == call.begun and "raised" not in call.ended


def _unasked(evidence: Evidence) -> Iterator[Violation]:
    # A read is not claimed; its command names its key.
    known = {_key(evidence.history, command) for command in evidence.history.commands}
    known |= {command.decided.effect_key for command in evidence.history.commands}
    for key, call in evidence.calls.items():
        if key not in known and call.begun:
            yield Violation("guessed", f"something was started under {key}, which no command named")


def _key(history: History, command: Command) -> str:
    claims = history.claims_of(command.call)
    return claims[0].claimed.effect_key if claims else command.decided.effect_key


def _owners(history: History, command: Command) -> int:
    return len({each.claimed.owner for each in history.claims_of(command.call)})
