"""Kills, replacements, and continued work. Pure."""

from __future__ import annotations

from anchorwatch.core.records import Kind
from anchorwatch.testing.demo.checks.helpers import first_launch, some
from anchorwatch.testing.demo.evidence import Incident
from anchorwatch.testing.harness import Check, Kill


def replaced(service: str, kill: Kill | None) -> Check:
    """A service process was killed and replaced."""
    name = f"{service} is killed with kill -9 and replaced"
    expected = f"the {service} process of mesh.json is killed, and another replaces it"
    if kill is None:
        return Check(name, expected, "it was not killed", ok=False)
    back = "no replacement"
    if kill.new_pid is not None:
        back = f"replaced by pid {kill.new_pid} after {kill.back_s:.1f} s"
    known = "" if kill.known else " (not in mesh.json)"
    seen = f"{kill.instance}, pid {kill.pid}{known}, killed {kill.during}; {back}"
    return Check(name, expected, seen, kill.known and kill.new_pid not in (None, kill.pid))


def turn_continued(evidence: Incident) -> Check:
    """Another process ended the killed planner's run, under a higher generation."""
    history = evidence.history
    expected = "the killed planner's run is taken over (generation + 1) and ended, under the same run id"
    launch = first_launch(history)
    begun = history.acquired(launch.call.run) if launch else None
    ended = history.ended(launch.call.run) if launch else None
    if launch is None or begun is None or ended is None:
        return Check("the turn continues", expected, "the launching run never ended", ok=False)
    over = [each for each in history.of_kind(Kind.TAKEN_OVER) if each.anchor.run_id == launch.call.run]
    holders = [begun.anchor.execution_id, *(each.anchor.execution_id for each in over)]
    generations = [begun.anchor.generation, *(each.anchor.generation for each in over)]
    ok = len(set(holders)) > 1 and generations == list(range(generations[0], generations[0] + len(over) + 1))
    seen = f"run {launch.call.run}: {' → '.join(map(str, holders))}, generation {' → '.join(map(str, generations))}"
    return Check("the turn continues", expected, f"{seen}, ended {ended.anchor.last_run_outcome}", ok)


def claim_matched(evidence: Incident) -> Check:
    """The killed executor is the owner of the journal's claim, and recorded no outcome."""
    name = "the killed executor held a claim"
    expected = "owner of the claim = its presence entry = a pid of mesh.json = the killed pid; no outcome under this claim"
    held, history = evidence.claim, evidence.history
    claim = next((each for each in history.claims if held and each.sequence == held.sequence), None)
    if held is None or claim is None:
        return Check(name, expected, "no claim was seen", ok=False)
    owner = claim.claimed.owner
    under_it = [each for each in history.outcomes if each.outcome.claim_sequence == claim.sequence]
    ok = (
        not under_it
        and (owner.instance, owner.incarnation) == (held.instance, held.presence_incarnation)
        and held.presence_pid == held.killed_pid
        and held.killed_pid in held.mesh_pids
    )
    seen = (
        f"claim at sequence {claim.sequence} on {claim.call}, owner {owner.instance}:{owner.incarnation}; presence says "
        f"{held.presence_incarnation}, pid {held.presence_pid}; mesh.json has {some(held.mesh_pids)}; killed {held.killed_pid}; "
        f"outcomes under it: {some(each.outcome.state for each in under_it)}"
    )
    return Check(name, expected, seen, ok)


def claim_taken_over(evidence: Incident) -> Check:
    """Another process took over the dead one's claim under the same effect key, and there is one outcome."""
    expected = "a second claim by another process under the same effect key, then one outcome"
    name = "the claim is taken over"
    held = evidence.claim
    first = next((each for each in evidence.history.claims if held and each.sequence == held.sequence), None)
    if first is None:
        return Check(name, expected, "the claim is not in the journal", ok=False)
    after = [each for each in evidence.history.claims_of(first.call) if each.sequence > first.sequence]
    outcomes = [each for each in evidence.history.outcomes if each.outcome.call == first.call]
    others = [each for each in after if each.claimed.owner != first.claimed.owner]
    ok = (
        len(others) == len(after) >= 1
        and all(each.claimed.effect_key == first.claimed.effect_key for each in after)
        and [each.outcome.state for each in outcomes] == ["succeeded"]
        and outcomes[0].outcome.claim_sequence == after[-1].sequence
    )
    taken = ", ".join(
        f"{each.claimed.owner.instance}:{each.claimed.owner.incarnation} at {each.sequence} under {each.claimed.effect_key}"
        for each in after
    )
    seen = f"claimed again by {taken or 'no process'}; outcomes: {some([each.outcome.state for each in outcomes])}"
    return Check(name, expected, seen, ok)


def journal_kept(evidence: Incident) -> Check:
    """Every record that the server acknowledged before its kill exists afterwards."""
    mark = evidence.mark
    expected = "the last record before the kill exists afterwards, byte for byte"
    if mark is None:
        return Check("the journal is kept", expected, "it was not read", ok=False)
    ok = mark.before > 0 and mark.after >= mark.before and mark.before_sha256 == mark.after_sha256
    seen = f"sequence {mark.before} ({mark.before_sha256[:12]}) before; {mark.after_sha256[:12] or 'nothing'} at it after, "
    return Check("the journal is kept", expected, f"{seen}the last is {mark.after}", ok)
