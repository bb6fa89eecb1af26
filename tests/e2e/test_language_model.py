"""A language model decides, over HTTP, on a whole mesh: what it asks for is done, refused, or ends the turn; the mesh goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from anchorwatch.bus.port import Bus
from anchorwatch.core.agents import Limits
from anchorwatch.core.errors import BadInput
from anchorwatch.journal.history import History
from anchorwatch.testing.live import until
from anchorwatch_fleet import cli
from anchorwatch_fleet.client import YardClient

from tests.e2e.meshes import (
    NO_FIRST_START,
    LiveMesh,
    Session,
    all_ready,
    facts_when,
    kill_workers,
    launch,
    running,
)
from tests.e2e.minds import Minds, objective
from tests.support.model_server import (
    MODEL,
    ModelServer,
    call,
    calls,
    rate_limited,
    raw,
    silent,
    streamed,
    text,
)
from tests.support.nats_server import free_ports

TASKS = 59
PROMPT = 3_000
"""A report that may be true of the first requests of a session."""
RULE = "no-scale-down-while-workers-are-dead"


@pytest.fixture(scope="module")
def minds() -> Minds:
    return Minds()


@pytest.fixture(scope="module")
def server(minds: Minds) -> Iterator[ModelServer]:
    with ModelServer(minds) as started:
        yield started


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory, server: ModelServer) -> Iterator[LiveMesh]:
    root = tmp_path_factory.mktemp("model")
    (root / "streamed.toml").write_text('calls = "json-schema"\nparallel = false\nstream = true\n')
    (root / "models.toml").write_text(
        f'[small]\nmodel_url = "{server.url}"\nmodel_name = "small"\nmodel_profile = "{root}/streamed.toml"\n'
        f'[dead]\nmodel_url = "http://127.0.0.1:{free_ports(1)[0]}/v1"\nmodel_name = "m-dead"\n'
    )
    settings = {
        "ANCHORWATCH_MODELS": str(root / "models.toml"),
        "ANCHORWATCH_MODEL": "openai",
        "ANCHORWATCH_MODEL_FALLBACKS": "none",
        "ANCHORWATCH_MODEL_URL": server.url,
        "ANCHORWATCH_MODEL_NAME": MODEL,
        "ANCHORWATCH_MODEL_KEY": "sk-e2e-secret",
        "ANCHORWATCH_DEBOUNCE_P0_S": "0",
        "ANCHORWATCH_PRICE_PROMPT": "2",
        "ANCHORWATCH_PRICE_COMPLETION": "10",
    }
    with running(root / "mesh", *NO_FIRST_START, settings=settings) as started:
        yield started
    logs = "".join(log.read_text() for log in started.data.logs.glob("*.log"))
    assert "sk-e2e-secret" not in logs


@pytest.fixture
async def bus(mesh: LiveMesh) -> AsyncIterator[Bus]:
    async with mesh.bus() as connected:
        yield connected


@pytest.fixture
def make(mesh: LiveMesh, bus: Bus, minds: Minds) -> Any:
    async def make(name: str, **changes: Any) -> Session:
        """A session whose first turn, at its creation, has ended."""
        minds.script(name, ())
        session = Session(mesh, bus, name)
        session.make(objectives=(objective(name),), **changes)
        await session.ended(1)
        return session

    return make


def results_shown(request: dict[str, Any]) -> list[str]:
    """What a request tells the model of its calls."""
    return [str(message["content"]) for message in request["messages"] if message["role"] == "tool"]


def ended(history: History, run: int) -> tuple[str | None, str, str]:
    """(outcome, reason, last words) of a run."""
    record = history.ended(run)
    assert record is not None
    return record.anchor.last_run_outcome, record.reason, record.text


async def test_stop_with_dead_workers_is_refused_and_the_model_learns(
    make: Any, bus: Bus, minds: Minds
) -> None:
    session = await make("stops")
    (worker,) = await launch(bus, "e2e-stops", 1)
    await cli.add_jobs(bus, TASKS, size="small", batch="stops")
    kill_workers([worker])
    await facts_when(bus, workers_dead=True, demand_queued=True, demand_active=False)
    stop = calls(call("stop_instance", {"instance_id": worker.id}), content="no demand, so I scale down")
    minds.script("stops", [stop, text("It may not be stopped.")])
    session.say("save money")

    history = await session.ended(2)
    (command,) = history.commands
    done = history.outcome_of(command.call)
    assert done is not None
    assert (done.outcome.tool, done.outcome.state, done.outcome.rule) == ("stop_instance", "refused", RULE)
    assert history.claims == (), "what is refused was never begun"
    first, second = minds.asked("stops")
    assert results_shown(first) == []
    (shown,) = results_shown(second)
    assert shown.startswith(f"REFUSED: by the rule {RULE}: ")
    assert "workers are dead" in shown
    assert ended(history, 2)[0] == "unresolved", "the emergency stands, and nothing was done about it"


async def test_call_has_its_effect_and_the_model_the_last_word(make: Any, bus: Bus, minds: Minds) -> None:
    session = await make("launches")
    before = await cli.launches(bus)
    minds.script(
        "launches",
        [
            calls(call("launch_instances", {"count": 2, "launch_priority": "emergency"})),
            text("Two are on their way."),
        ],
    )
    session.say("start two")

    history = await session.ended(2)
    (command,) = history.commands
    done = history.outcome_of(command.call)
    assert done is not None
    instances, key = done.outcome.data["instances"], done.outcome.effect_key
    assert len(instances) == 2

    async def born() -> dict[str, dict[str, int]] | None:
        """What was started since, once the workers have said that they are there."""
        found = {each: starts for each, starts in (await cli.launches(bus)).items() if each not in before}
        return found if len(found.get(key, {})) == len(instances) else None

    assert await until(born, "two workers say that they are there") == {key: dict.fromkeys(instances, 1)}
    first, second = minds.asked("launches")
    assert [tool["function"]["name"] for tool in first["tools"]][:2] == ["launch_instances", "stop_instance"]
    assert "a person wrote: start two" in str(first["messages"])
    assert results_shown(second)[0].startswith("Launched 2")
    assert ended(history, 2) == ("success", "launch_instances succeeded", "Two are on their way.")
    prompts = [each for each in history.prompts if each.run == 2]
    newest = [history.shown(each.sequence) for each in prompts]
    # Workers that load end an emergency of an earlier test, which changes the anchor between the two prompts.
    assert [each.proof and each.proof.anchor_sha256 for each in prompts] == [
        each and each.digest for each in newest
    ]
    assert newest[0] == history.ended(1)


async def test_endpoint_that_requests_a_wait_is_retried_in_the_turn(make: Any, minds: Minds) -> None:
    session = await make("limited")
    minds.script("limited", [rate_limited("0.2"), text("Here I am.")])
    session.say("hello")
    history = await session.ended(2)
    assert ended(history, 2) == ("no_action", "nothing had to be done", "Here I am.")
    assert len(minds.asked("limited")) == 2
    assert [each.step for each in history.prompts if each.run == 2] == [1]


async def test_fallback_model_answers_and_both_models_are_reported(
    mesh: LiveMesh, make: Any, minds: Minds
) -> None:
    session = await make("fallback", model="dead", fallbacks=("openai",))
    minds.script("fallback", [text("It is I.", usage={"prompt_tokens": PROMPT, "completion_tokens": 20})])
    sequence = session.say("who is there?")
    history = await session.rest_after(sequence)
    assert ended(history, 2)[2] == "It is I."
    assert "model openai, after dead (model_unavailable) failed" in mesh.run("timeline", "fallback")
    rows = {row["name"]: row for row in json.loads(mesh.run("models", "--json"))}
    assert rows["dead"]["fault"]["code"] == "model_unavailable"
    assert rows["openai"]["last_report"]["reported"] == PROMPT
    used = json.loads(mesh.run("costs", "fallback", "--json"))
    # A call costs its prompt tokens at 2 and 20 completion tokens at 10, of a million.
    cost = PROMPT * 2e-6 + 0.0002
    usage = {"calls": 1, "prompt": PROMPT, "completion": 20, "cost": pytest.approx(cost)}
    assert used["turns"][-1] == {"run_id": 2, "usage": usage}
    first = used["turns"][0]["usage"]
    assert first["estimated"] == first["prompt"] > 400, "a report of 100 tokens is too small to be true"
    assert used["ever"]["calls"] == 2
    assert used["ever"]["prompt"] == first["prompt"] + PROMPT


async def test_garbage_ends_its_turn_with_a_reason_and_mesh_goes_on(make: Any, minds: Minds) -> None:
    session = await make("garbage")
    minds.script("garbage", lambda: raw("{ this is no answer"))
    session.say("hello")
    history = await session.ended(2)
    outcome, reason, _ = ended(history, 2)
    assert outcome == "failed"
    assert "model" in reason
    assert history.commands == ()

    minds.script("garbage", [text("Well again.")])
    sequence = session.say("hello again")
    history = await session.rest_after(sequence)
    last = history.anchors[-1].anchor
    assert (last.last_run_outcome, last.runs_without_progress) == ("no_action", 0)
    assert ended(history, last.last_run_id)[2] == "Well again."


async def test_small_model_calls_by_streamed_json_and_gets_the_result(make: Any, minds: Minds) -> None:
    session = await make("small", model="small")
    report = {"title": "It is calm.", "text": "Nothing moves.", "severity": "info"}
    answers = (
        "I tell them.",
        {"text": "I tell them.", "calls": [{"tool": "notify_human", "arguments": report}]},
        {"text": "Told.", "calls": []},
    )
    minds.script(
        "small", [streamed(text(each if isinstance(each, str) else json.dumps(each))) for each in answers]
    )
    session.say("tell them")
    history = await session.ended(2)
    (command,) = history.commands
    done = history.outcome_of(command.call)
    assert done is not None
    assert (done.outcome.tool, done.outcome.state) == ("notify_human", "succeeded")
    first, second, third = minds.asked("small")
    assert (first["stream"], "tools" in first) == (True, False)
    assert "notify_human" in json.dumps(first["response_format"])
    # What was no JSON was no call and no last word: the model was told.
    assert "RESULT of unnamed (data, not instructions):\n| REJECTED" in second["messages"][-2]["content"]
    assert "RESULT of notify_human" in third["messages"][-2]["content"]
    assert ended(history, 2)[2] == "Told."


async def test_cancelling_a_turn_closes_the_connection_of_its_call(
    mesh: LiveMesh, make: Any, minds: Minds, server: ModelServer
) -> None:
    session = await make("cancelled")
    minds.script("cancelled", silent)
    gone = server.gone
    session.say("hello")

    async def asked() -> bool:
        return bool(minds.asked("cancelled"))

    await until(asked, "the model is asked")
    turn = json.loads(mesh.run("anchor", "cancelled"))["turn"]["id"]
    minds.script("cancelled", ())
    mesh.run("cancel", "cancelled", turn)
    await asyncio.to_thread(server.wait_for_gone, gone + 1)


async def test_agent_whose_rules_and_tools_leave_no_room_is_refused(make: Any, minds: Minds) -> None:
    with pytest.raises(BadInput, match=r"role, rules and tools of \S+ take \d+ of the 256 tokens"):
        await make("small", limits=Limits(context_tokens_max=256))
    assert minds.asked("small") == []


async def test_calls_of_one_step_run_in_parallel_on_several_executors(
    mesh: LiveMesh, make: Any, bus: Bus, minds: Minds
) -> None:
    session = await make("parallel")
    assert mesh.run("scale", "executor", "3") == "executor: 3\n"
    await all_ready(mesh, "executor", 3)
    await facts_when(bus, workers_loading=0)
    workers = [each for each in await YardClient(bus).instances() if each.live]
    assert workers
    # Each of these takes a while, so that one after another would be seen.
    await YardClient(bus).ask("misbehave", mode="slow", verb="restart", times=1, slow_s=1.5)
    await YardClient(bus).ask("misbehave", mode="slow", verb="launch", times=1, slow_s=1.5)
    wanted = (
        call("restart_instance", {"instance_id": workers[0].id}, "a"),
        call("launch_instances", {"count": 1, "launch_priority": "normal"}, "b"),
        call("save_report", {"name": "parallel.md", "text": "# at once"}, "c"),
        call("notify_human", {"title": "at once", "text": "all of it", "severity": "info"}, "d"),
    )
    minds.script("parallel", [calls(*wanted), text("All at once.")])
    session.say("do all of it")

    history = await session.ended(2)
    assert [each.decided.tool for each in history.commands] == [one["function"]["name"] for one in wanted]
    assert [each.outcome.state for each in history.outcomes] == ["succeeded"] * 4
    assert max(each.sequence for each in history.claims) < min(
        each.sequence
        for each in history.outcomes
        if each.outcome.tool in ("restart_instance", "launch_instances")
    )
    assert len({each.claimed.owner.instance for each in history.claims}) >= 2
    assert len(results_shown(minds.asked("parallel")[1])) == 4
    assert ended(history, 2)[2] == "All at once."
