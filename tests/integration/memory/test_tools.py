"""The tools remember, recall and forget through the real pool, and queries over RPC."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import structlog
from anchorwatch.bus.port import Bus
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.effect.state import Outcome
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.journal.artifacts import ArtifactJournal, Provenance
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.inputs import accept
from anchorwatch.journal.mapping import input_body
from anchorwatch.packs.port import ToolContext, ToolFailed
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import WallClock
from anchorwatch_memory.follow import Follower
from anchorwatch_memory.projections import InlineProjections
from anchorwatch_memory.tools import MemoryTools

from tests.support.in_process import Services
from tests.support.sessions import ScriptedSession, now_ms

AGENT = AgentSpec(name="keeper", pack="fleet", grants=("remember", "recall", "read_result"))


async def ask(bus: Bus, verb: str, **params: Any) -> dict[str, Any]:
    payload = json.dumps({"workspace": "default", **params}).encode()
    answer: dict[str, Any] = json.loads(await bus.request(f"aw.rpc.memory.{verb}", payload, 5.0))
    return answer


async def call(session: ScriptedSession, tool: str, **args: Any) -> Outcome:
    (decided,) = await session.commands((tool, args), pool="memory")
    return await session.outcome(decided)


@pytest.fixture
async def session(bus: Bus, services: Services) -> ScriptedSession:
    """A session with a running turn, and a memory service."""
    agents = await AgentDirectory.open(bus)
    await agents.apply("default", AGENT)
    await services.start("memory")
    made = ScriptedSession(bus)
    await made.create()
    await made.acquire()
    return made


async def test_memory_is_recalled_in_the_next_step(session: ScriptedSession, bus: Bus) -> None:
    kept = await call(session, "remember", text="w-3 hangs under load", topic="workers")
    assert (kept.state, kept.data["memory"]["text"]) == ("succeeded", "w-3 hangs under load")
    found = await call(session, "recall", query="which worker hangs?")
    assert found.state == "succeeded"
    assert [each["memory_id"] for each in found.data["memories"]] == [kept.data["memory"]["id"]]
    assert "w-3 hangs under load" in found.text
    nothing = await call(session, "recall", query="weather")
    assert nothing.data["memories"] == []
    listed = await ask(bus, "memories")
    assert [each["call"] for each in listed["result"]["data"]] == ["fleet/1.1.1"]


async def test_memory_is_shared_within_its_workspace_only(session: ScriptedSession, bus: Bus) -> None:
    await call(session, "remember", text="w-3 hangs", topic="workers")
    agents = await AgentDirectory.open(bus)
    await agents.apply("elsewhere", AGENT)
    counts = []
    for name, workspace in (("other", "default"), ("fleet", "elsewhere")):
        other = ScriptedSession(bus, name, workspace)
        await other.create()
        await other.acquire()
        counts.append(len((await call(other, "recall", query="hangs")).data["memories"]))
    assert counts == [1, 0]


async def test_remember_needs_a_grant(session: ScriptedSession, bus: Bus) -> None:
    del session  # its memory must run
    agents = await AgentDirectory.open(bus)
    await agents.apply("default", AGENT.model_copy(update={"name": "other", "grants": ()}))
    other = ScriptedSession(bus, "other")
    await other.create("other@1")
    await other.acquire(agent="other@1")
    refused = await call(other, "remember", text="a", topic="b")
    assert (refused.state, refused.rule) == ("refused", "grant")
    assert (await ask(bus, "memories"))["result"]["data"] == []


def context_of(workspace: str, key: str = "key") -> ToolContext:
    ref = SessionRef(workspace, "fleet")
    return ToolContext(ref, CallId(1, 1, 1), "turn_1", AGENT, key, 1, 10.0, now_ms(), 300.0)


async def test_forget_needs_a_memory_of_the_same_workspace(session: ScriptedSession, bus: Bus) -> None:
    kept = await call(session, "remember", text="w-3 hangs", topic="workers")
    memory_id = kept.data["memory"]["id"]
    projections = InlineProjections()
    log = structlog.stdlib.get_logger("test")
    follower = Follower(bus, "JOURNAL_0", "aw.journal.0.>", "memory-2", projections, WallClock(), log)
    stopping = asyncio.Event()
    following = asyncio.create_task(follower.run(stopping))
    tools = MemoryTools(
        bus, "JOURNAL_0", projections, follower, ArtifactJournal(bus, Committer(bus, "JOURNAL_0"), "test")
    )
    forgotten = await tools.run("forget", {"id": memory_id}, context_of("default"))
    assert forgotten.data == {"forgotten": {"id": memory_id}}
    for tool, args, workspace in (
        ("forget", {"id": memory_id}, "elsewhere"),
        ("forget", {"id": "mem-none"}, "default"),
        ("forget", {}, "default"),
        ("fly", {}, "default"),
    ):
        with pytest.raises(ToolFailed):
            await tools.run(tool, args, context_of(workspace))
    stopping.set()
    await following
    await follower.close()
    await projections.close()


async def test_output_cut_in_a_prompt_is_read_whole_in_parts(session: ScriptedSession, bus: Bus) -> None:
    for n in range(8):
        await call(session, "remember", text=f"lesson {n}: " + "be patient. " * 80, topic="lessons")
    recalled = await call(session, "recall", query="lesson")
    assert "8303 bytes in all" in recalled.text
    parts = [await call(session, "read_result", of="1.9.1", part=part) for part in range(1, 6)]
    assert parts[0].text.startswith("[part 1 of 5 of 1.9.1]\n")
    whole = "".join(each.text.partition("\n")[2] for each in parts)
    assert (len(whole), [f"lesson {n}: be patient" in whole for n in range(8)]) == (8303, [True] * 8)
    over = await call(session, "read_result", of="1.9.1", part=6)
    assert (over.state, "has 5 parts" in over.text) == ("failed", True)
    artifacts = ArtifactJournal(bus, Committer(bus, "JOURNAL_0"), "test")
    kept = await artifacts.keep(
        session.ref,
        "letter.txt",
        "text/plain",
        b"Dear all",
        Provenance(maker="k-1", acting_as="a person"),
        at_ms=1,
    )
    letter = await call(session, "read_result", of=kept.artifact_id, part=1)
    assert letter.text == f"[part 1 of 1 of {kept.artifact_id}]\nDear all"
    for odd in ("9.9.9", "77.2", "nothing"):
        assert (await call(session, "read_result", of=odd, part=1)).state == "failed"


async def test_text_of_an_excerpt_is_read_by_its_handle(session: ScriptedSession, bus: Bus) -> None:
    order = "look after the fleet. " * 100 + "Never restart w-99."
    receipt = await accept(
        Committer(bus, "JOURNAL_0"),
        session.ref,
        "k-long",
        input_body("message", 0, text=order),
        at_ms=now_ms(),
        writer="test",
    )
    await call(session, "recall", query="nothing")
    for of in (f"input {receipt.sequence}", str(receipt.sequence)):
        parts = [(await call(session, "read_result", of=of, part=part)).text for part in (1, 2)]
        assert "".join(part.partition("\n")[2] for part in parts) == order
    words = await call(session, "read_result", of="words 1.1", part=1)
    assert words.state == "succeeded"
    for odd in ("input 999999", "9" * 40, "words 77.1"):
        missing = await call(session, "read_result", of=odd, part=1)
        assert (missing.state, odd in missing.text or "artifact" in missing.text) == ("failed", True)


async def test_invalid_query_is_answered_with_the_problem(session: ScriptedSession, bus: Bus) -> None:
    del session
    for verb, params, code in (
        ("fly", {}, "not_found"),
        ("session", {"session": "none"}, "not_found"),
        ("session", {}, "bad_input"),
        ("sessions", {"workspace": 3}, "bad_input"),
        ("sessions", {"limit": 10**6}, "bad_input"),
        ("sessions", {"at_least": "x"}, "bad_input"),
        ("artifact", {"artifact_id": "none"}, "not_found"),
    ):
        answer = await ask(bus, verb, **params)
        assert answer["error"]["code"] == code, (verb, answer)
    for payload in (b"{", b"[]", b"3", b"\xff"):
        answer = json.loads(await bus.request("aw.rpc.memory.sessions", payload, 5.0))
        assert answer["error"]["code"] == "bad_input"


async def test_answer_waits_for_at_least_and_reports_as_of(session: ScriptedSession, bus: Bus) -> None:
    for _ in range(20):
        head = await session.control(Kind.PAUSED)
        answer = await ask(bus, "session", session="fleet", at_least=head)
        assert answer["result"]["status"] == "paused"
        assert answer["as_of"] >= head
        await session.control(Kind.RESUMED)
    ahead = await ask(bus, "session", session="fleet", at_least=head + 1_000)
    assert ahead["as_of"] < head + 1_000
