"""Nothing lost, nothing duplicated: counted at the provider and the receiver, not in the journal. Pure."""

from __future__ import annotations

from collections import Counter

from anchorwatch.core.records import Kind
from anchorwatch.testing.demo.checks.helpers import LAUNCH, RESTART, named, pairs, some
from anchorwatch.testing.demo.evidence import Incident
from anchorwatch.testing.harness import Check
from anchorwatch.testing.receiver import Arrival

SENT = "sent"


def jobs_proved(evidence: Incident) -> Check:
    """Every job has exactly one result, and its proof holds: it is verified again here."""
    stored = Counter(each.job_id for each in evidence.results)
    proved = {
        each.job_id
        for each in evidence.results
        if each.job_id in evidence.jobs and each.proves(evidence.jobs[each.job_id])
    }
    twice = sum(1 for count in stored.values() if count > 1)
    strange = len(set(stored) - set(evidence.jobs))
    total = len(evidence.jobs)
    seen = f"{len(proved)} of {total} proved, {twice} with several results, {strange} of unknown jobs"
    expected = f"{total} of {total} proved, 0 with several results, 0 of unknown jobs"
    return Check("each job has one verified result", expected, seen, bool(total) and seen == expected)


def launched_once(evidence: Incident) -> Check:
    """Counted outside the journal: by the workers' own notes of their starts."""
    wanted: dict[str, int] = dict(evidence.first_keys)
    for command in evidence.history.commands:
        starts = {LAUNCH: int(command.decided.args.get("count", 0)), RESTART: 1}.get(command.decided.tool, 0)
        keys = {each.claimed.effect_key for each in evidence.history.claims_of(command.call)}
        wanted |= dict.fromkeys(keys, starts) if starts else {}
    found = {key: len(starts) for key, starts in evidence.launched.items()}
    again = [
        f"{instance} {times} times"
        for starts in evidence.launched.values()
        for instance, times in starts.items()
        if times != 1
    ]
    seen = f"{pairs(found)}; started again: {some(again)}"
    expected = f"{pairs(wanted)}; started again: none"
    return Check("each launch happened once", expected, seen, bool(wanted) and found == wanted and not again)


def one_outcome_each(evidence: Incident) -> Check:
    """Every decided command has exactly one outcome."""
    outcomes = Counter(each.outcome.call for each in evidence.history.outcomes)
    commands = [each.call for each in evidence.history.commands]
    without = [call for call in commands if outcomes[call] == 0]
    several = [call for call in commands if outcomes[call] > 1]
    seen = f"{len(commands)} decided; without an outcome: {some(without)}; with several: {some(several)}"
    expected = f"{len(commands)} decided; without an outcome: none; with several: none"
    return Check("each command has one outcome", expected, seen, bool(commands) and seen == expected)


def notified_once(evidence: Incident) -> Check:
    """Each ended turn has one notification under one id, and none is sent again once it is recorded."""
    ends = evidence.history.of_kind(Kind.TURN_ENDED)
    by_id: dict[str, list[Arrival]] = {}
    for arrival in evidence.requests:
        by_id.setdefault(arrival.webhook_id, []).append(arrival)
    ids_of = Counter(group[0].record for group in by_id.values())
    sent_at = {each.delivery_id: each.at_ms for each in evidence.history.sent if each.state == SENT}
    faults = {
        "not notified": sum(1 for each in ends if ids_of[each.sequence] == 0),
        "under several ids": sum(1 for each in ends if ids_of[each.sequence] > 1),
        "never accepted": sum(1 for group in by_id.values() if not any(each.accepted for each in group)),
        # An unrecorded notification may be sent again under the same id, by which the receiver dedupes it.
        "sent again once recorded": sum(
            1 for each in evidence.requests if each.at_ms > sent_at.get(each.webhook_id, each.at_ms)
        ),
        "with other content when sent again": sum(
            1 for group in by_id.values() if len({each.body_sha256 for each in group}) > 1
        ),
        "badly signed": sum(1 for each in evidence.requests if not each.signed),
        "not sent according to the journal": len(set(by_id) - set(sent_at)),
    }
    found = ", ".join(f"{count} {fault}" for fault, count in faults.items())
    none = ", ".join(f"0 {fault}" for fault in faults)
    seen = (
        f"{len(ends)} turns ended, {len(by_id)} notifications in {len(evidence.requests)} requests: {found}"
    )
    ok = bool(ends) and not any(faults.values())
    return Check("each notification arrived once", f"one for each of {len(ends)} turns: {none}", seen, ok)


def run_ids_gapless(evidence: Incident) -> Check:
    """The runs are numbered 1, 2, 3 and so on, by the records that began them."""
    runs = [each.anchor.run_id for each in evidence.history.of_kind(Kind.ACQUIRED)]
    expected = list(range(1, len(runs) + 1))
    ok = runs == expected and len(runs) > 1
    return Check("run ids have no gaps", some(expected) if len(runs) > 1 else "1, 2, …", some(runs), ok)


def inputs_consumed(evidence: Incident) -> Check:
    """Every accepted input was consumed by one run."""
    history = evidence.history
    runs = [each.anchor.run_id for each in history.of_kind(Kind.ACQUIRED)]
    takers = Counter(each.sequence for run in runs for each in history.taken(run))
    lost = [named(each) for each in history.inputs if takers[each.sequence] == 0]
    twice = [named(each) for each in history.inputs if takers[each.sequence] > 1]
    seen = f"{len(history.inputs)} accepted; consumed by none: {some(lost)}; by several: {some(twice)}"
    expected = f"{len(history.inputs)} accepted; consumed by none: none; by several: none"
    return Check("no input is lost", expected, seen, bool(history.inputs) and seen == expected)
