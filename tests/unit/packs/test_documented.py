"""The pack that docs/packs.md shows works as it stands there."""

from pathlib import Path
from types import ModuleType
from typing import Any

from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.models.port import PastCall, Situation
from anchorwatch.packs.port import HasBooks, ToolContext

DOCS = Path(__file__).parents[3] / "docs" / "packs.md"
AGENT = AgentSpec(name="seller", pack="till", grants=("sell",))


def documented(book: Path) -> Any:
    """The module, with a book of the test."""
    source = DOCS.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    module = ModuleType("till")
    exec(compile(source, "till.py", "exec"), module.__dict__)  # noqa: S102 - our own documentation
    vars(module)["BOOK"] = book
    return module


def context(effect_key: str, attempt: int) -> ToolContext:
    return ToolContext(
        ref=SessionRef("default", "shop"), call=CallId(1, 1, 1), turn_id="t", agent=AGENT, effect_key=effect_key,
        attempt=attempt, deadline_s=30.0, now_ms=0, heartbeat_s=60.0,
    )  # fmt: skip


async def test_documented_pack_sells_once_a_key_and_its_books_agree(tmp_path: Path) -> None:
    pack = documented(tmp_path / "book").PACK
    assert [tool.name for tool in pack.tools(AGENT)] == list(AGENT.grants)
    runtime = await pack.connect(None)
    for attempt in (1, 2):
        await runtime.run("sell", {}, context("k-1", attempt))
    await runtime.run("sell", {}, context("k-2", 1))
    assert (await runtime.observe()).facts == {"sold": 2}
    assert isinstance(runtime, HasBooks)
    assert [await runtime.times_done("sell", key) for key in ("k-1", "k-2", "k-3")] == [1, 1, 0]


async def test_its_rules_sell_and_then_end_the_turn(tmp_path: Path) -> None:
    pack = documented(tmp_path / "book").PACK
    seen = await (await pack.connect(None)).observe()
    first = Situation(1, {}, seen, (), (), (), (), {}, 60.0)
    assert [call.name for call in pack.rules(first).calls] == ["sell"]
    done = PastCall("sell", {}, "succeeded", "Sold one.")
    then = Situation(1, {}, seen, (), ((done,),), (), (), {}, 60.0)
    assert pack.rules(then).calls == ()
