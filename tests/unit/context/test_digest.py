"""The digest of a request: of all of it, whatever of it was digested before."""

from __future__ import annotations

from anchorwatch.codec import canonical_json, sha256_hex
from anchorwatch.context.digest import request_bytes, request_digest
from anchorwatch.core.facts import Observation
from anchorwatch.models.port import Chat, ModelRequest, Situation
from hypothesis import given
from hypothesis import strategies as st

SITUATION = Situation(1, {}, Observation("", {}, 0, ""), (), (), (), (), {}, 1.0)
MESSAGES = st.lists(
    st.builds(lambda text: {"role": "user", "content": text}, st.text(max_size=5)), max_size=3
).map(tuple)
PASTS = st.lists(MESSAGES, max_size=3).map(tuple)


@given(PASTS, st.lists(st.tuples(MESSAGES, MESSAGES, MESSAGES), min_size=1, max_size=6))
def test_requests_with_a_shared_past_each_have_the_whole_digest(
    past: tuple[tuple[Chat, ...], ...],
    others: list[tuple[tuple[Chat, ...], tuple[Chat, ...], tuple[Chat, ...]]],
) -> None:
    for opening, now, tools in (*others, *others):
        request = ModelRequest(now, tools, SITUATION, opening, past)
        whole = canonical_json({"messages": list(request.messages), "tools": list(request.tools)})
        assert request_bytes(request) == whole
        assert request_digest(request) == sha256_hex(whole)


@given(st.lists(MESSAGES, min_size=1, max_size=12), st.integers(1, 4), st.data())
def test_growing_conversation_has_the_whole_digest_at_each_turn(
    turns: list[tuple[Chat, ...]], shown: int, data: st.DataObject
) -> None:
    for through in range(1, len(turns) + 1):
        past = list(turns[max(0, through - shown) : through])
        if data.draw(st.booleans()):
            # What became of a call was heard after its turn was over.
            past[data.draw(st.integers(0, len(past) - 1))] = ({"role": "user", "content": f"late {through}"},)
        request = ModelRequest((), (), SITUATION, (), tuple(past))
        assert request_digest(request) == sha256_hex(request_bytes(request))
        whole = canonical_json({"messages": list(request.messages), "tools": []})
        assert request_bytes(request) == whole
