"""``anchorwatch demo``: starts a mesh, runs the incident, checks the evidence, and leaves nothing."""

from __future__ import annotations

import asyncio
import base64
import random
import secrets

from pydantic import SecretStr

from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.mesh.credentials import CLI, SERVICES, Credentials, pack_services
from anchorwatch.packs import recording
from anchorwatch.service.connect import connect
from anchorwatch.settings import load
from anchorwatch.testing.checks import check
from anchorwatch.testing.console import Console, ended_by_signals, undisturbed
from anchorwatch.testing.demo import report
from anchorwatch.testing.demo.checks import check_all
from anchorwatch.testing.demo.checks.helpers import some
from anchorwatch.testing.demo.evidence import Incident
from anchorwatch.testing.demo.stage import Stage
from anchorwatch.testing.demo.story import CHANNEL, HEARTBEAT_S, Story
from anchorwatch.testing.harness import Check
from anchorwatch.testing.receiver import Receiver

EXECUTORS = 2
SEED_MAX = 2**32
COLLECT_S_MAX = 30.0


def run(*, as_json: bool = False, keep: bool = False, seed: int | None = None) -> int:
    """Run the demo; returns 0 if every check holds, else 1."""
    tell = Console(as_json)
    seed = secrets.randbelow(SEED_MAX) if seed is None else seed
    tell(f"the incident, on real processes (seed {seed})")
    evidence, broken = Incident(), ""
    left: list[int] = []
    with ended_by_signals():
        stage = Stage()
        stage.settings = _settings(stage)
        try:
            evidence, broken = _play(stage, seed, tell)
        finally:
            with undisturbed():
                left = _leave(stage, keep=keep)
    checks = [] if not evidence.jobs else check_all(evidence)
    checks += [] if broken else [_promises_kept(evidence)]
    checks += [_story_ended(broken), _nothing_left(stage, left, keep=keep)]
    tell("the mesh is stopped" + (f"; its data is kept in {stage.root}" if keep else ""))
    kept = str(stage.root) if keep else None
    return tell.conclude(report.outcome(seed, round(tell.seconds, 1), checks, evidence, kept))


def _play(stage: Stage, seed: int, tell: Console) -> tuple[Incident, str]:
    """The evidence, and the reason if the story broke off."""
    secret = f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}"
    with Receiver(secret) as receiver:
        _write_routes(stage, receiver.url, secret)
        # With the yard, but without the additions of a first start: the agent, its session, a first turn.
        only = [word for name in (*SERVICES, *pack_services()) for word in ("--only", name)]
        stage.up("--bare", *only, "--scale", f"executor={EXECUTORS}")
        tell(
            f"the mesh is up: {len(stage.rows())} processes on {stage.mesh.nats_url}, data in {stage.data.root}"
        )
        return asyncio.run(_run_story(stage, receiver, seed, tell))


async def _run_story(stage: Stage, receiver: Receiver, seed: int, tell: Console) -> tuple[Incident, str]:
    credentials = Credentials.load(stage.data)
    assert credentials is not None  # noqa: S101 - the running mesh has made them
    password = SecretStr(credentials.passwords[CLI])
    settings = load(nats_url=stage.mesh.nats_url, nats_user=CLI, nats_password=password)
    bus = await connect(settings, "anchorwatch-demo")
    story = Story(stage, bus, receiver, random.Random(seed), tell)  # noqa: S311 - it chooses times, and is not a secret
    broken = ""
    try:
        try:
            await story.play()
        except AnchorWatchError as error:
            broken = str(error)
            tell(f"the story breaks off: {error}")
        try:
            async with asyncio.timeout(COLLECT_S_MAX):
                await story.collect()
        except (AnchorWatchError, TimeoutError) as error:
            broken = broken or f"the evidence could not be read: {error}"
    finally:
        await bus.close()
    return story.evidence, broken


def _settings(stage: Stage) -> dict[str, str]:
    """The mesh's settings: no language model, and a heartbeat too slow to wake the agent."""
    return {
        "ANCHORWATCH_MODEL": "rules",
        "ANCHORWATCH_HEARTBEAT_S": f"{HEARTBEAT_S:g}",
        "ANCHORWATCH_NOTIFY": str(stage.root / "notify.toml"),
        recording.VARIABLE: str(stage.calls),
    }


def _write_routes(stage: Stage, url: str, secret: str) -> None:
    routes = stage.root / "notify.toml"
    routes.write_text(
        f'[[channel]]\nname = "{CHANNEL}"\nkind = "webhook"\nurl = "{url}"\nsecret = "{secret}"\non = ["turn_ended"]\n',
        encoding="utf-8",
    )
    routes.chmod(0o600)


# ---------------------------------------------------------------- the end


def _leave(stage: Stage, *, keep: bool) -> list[int]:
    try:
        return stage.end()
    finally:
        if not keep:
            stage.remove()


def _story_ended(broken: str) -> Check:
    return Check("the story is complete", "every step happened", broken or "every step happened", not broken)


def _promises_kept(evidence: Incident) -> Check:
    """The crash test's checks for the demo's session."""
    violations = check(evidence)
    return Check("no promise of a crash test is broken", "none", some(violations), not violations)


def _nothing_left(stage: Stage, left: list[int], *, keep: bool) -> Check:
    there = stage.root.exists()
    expected = f"processes: none; directory: {'kept' if keep else 'none'}"
    seen = f"processes: {', '.join(map(str, left)) or 'none'}; directory: {('kept' if keep else stage.root) if there else 'none'}"
    return Check("nothing is left", expected, seen, seen == expected)
