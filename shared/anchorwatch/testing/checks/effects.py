"""Effects: the independent count of the provider compared with the journal."""

from __future__ import annotations

from collections.abc import Iterator

from anchorwatch.core.effect.state import Outcome
from anchorwatch.core.tools import EffectClass
from anchorwatch.journal.history import Command, History
from anchorwatch.testing.checks.evidence import Call, Evidence, Violation

OWNER_DIED = "owner_died"


def check_effects(evidence: Evidence) -> Iterator[Violation]:
    """Each effect took place at most once, and the journal's outcome is true."""
    for command in evidence.history.commands:
        effect_class = evidence.classes.get(command.decided.tool, EffectClass.READ)
        if effect_class is EffectClass.READ:
            continue
        key = _key(evidence.history, command)
        call = evidence.calls.get(key, Call(key))
        where = f"{command.decided.tool} {command.call} ({key})"
        yield from _repeated(where, effect_class, call)
        done = evidence.history.outcome_of(command.call)
        if done is not None:
            yield from _misreported(where, call, done.outcome, _owners(evidence.history, command))
    yield from _undecided(evidence)


def _repeated(where: str, effect_class: EffectClass, call: Call) -> Iterator[Violation]:
    if effect_class is EffectClass.IRREVERSIBLE and call.begun > 1:
        yield Violation("duplicated", f"{where} is irreversible, but was started {call.begun} times")
    if call.done is not None and call.done > 1:
        yield Violation("duplicated", f"{where} was done {call.done} times")


def _misreported(where: str, call: Call, outcome: Outcome, owners: int) -> Iterator[Violation]:
    match outcome.state:
        case "succeeded" if call.done == 0:
            yield Violation("guessed", f"{where} is recorded as succeeded, but was not done")
        case "failed" | "refused" if call.done:
            yield Violation("guessed", f"{where} is recorded as {outcome.state}, but was done")
        case "refused" if call.begun:
            yield Violation("guessed", f"{where} is recorded as refused, but was started")
        case "unknown" if owners <= 1 and outcome.error != OWNER_DIED and _is_certain(call):
            yield Violation("guessed", f"{where} is recorded as unknown, but its executor observed its end")
        case _:
            pass


def _is_certain(call: Call) -> bool:
    """Whether every start has a certain end."""
    return call.begun > 0 and len(call.ended) == call.begun and "raised" not in call.ended


def _undecided(evidence: Evidence) -> Iterator[Violation]:
    # A read has no claim; its command has the key.
    known = {_key(evidence.history, command) for command in evidence.history.commands}
    known |= {command.decided.effect_key for command in evidence.history.commands}
    for key, call in evidence.calls.items():
        if key not in known and call.begun:
            yield Violation("guessed", f"an effect was started under {key}, which no command has")


def _key(history: History, command: Command) -> str:
    claims = history.claims_of(command.call)
    return claims[0].claimed.effect_key if claims else command.decided.effect_key


def _owners(history: History, command: Command) -> int:
    return len({each.claimed.owner for each in history.claims_of(command.call)})
