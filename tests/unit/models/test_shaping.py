"""A request is what its endpoint's profile makes of it."""

from __future__ import annotations

from itertools import pairwise

from anchorwatch.core.facts import Observation
from anchorwatch.models.port import ModelRequest, Situation
from anchorwatch.models.profile import JSON_SCHEMA, OPENAI, Profile
from anchorwatch.models.request import NUDGE
from anchorwatch.models.shaping import body_of, nudged, shaped
from anchorwatch.models.tokens import Counter
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.models.test_json_calls import CALLED, REQUEST

ALTERNATE = Profile(alternate=True)
SITUATION = Situation(1, {}, Observation("", {}, 0, ""), [], [], (), (), {}, 300)


def roles(profile: Profile, request: ModelRequest) -> list[str]:
    return [message["role"] for message in body_of(profile, request)["messages"]]


def test_messages_of_one_side_merge_where_roles_must_alternate() -> None:
    body = body_of(ALTERNATE, ModelRequest(({"role": "user", "content": "a"},) * 3, (), SITUATION))
    assert body["messages"] == [{"role": "user", "content": "a\n\na\n\na"}]
    assert roles(JSON_SCHEMA.model_copy(update={"alternate": True}), REQUEST) == [
        "system", "user", "assistant", "user", "assistant", "user",
    ]  # fmt: skip


def test_calls_and_their_results_stay_apart() -> None:
    request = ModelRequest(({"role": "assistant", "content": "I stop it."}, CALLED), (), SITUATION)
    assert roles(ALTERNATE, request) == ["assistant", "assistant"]
    assert roles(ALTERNATE, REQUEST) == [
        "system", "user", "assistant", "tool", "tool", "assistant", "user",
    ]  # fmt: skip


def test_nudge_is_one_more_message_or_a_part_of_the_last() -> None:
    messages = [{"role": "user", "content": "go"}]
    assert nudged(OPENAI, messages) == [*messages, {"role": "user", "content": NUDGE}]
    assert nudged(ALTERNATE, messages) == [{"role": "user", "content": f"go\n\n{NUDGE}"}]
    assert len(messages) == 1


texts = st.text(max_size=40) | st.sampled_from(["\n", " \n\n ", "a\n", "\n\n\nb", "12", "}", "\u3000"])
talks = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": texts}), max_size=12
)


@given(talks)
@settings(max_examples=150, deadline=None)
def test_shaped_request_is_never_larger_than_counted(talk: list[dict[str, str]]) -> None:
    request = ModelRequest(tuple(talk), (), SITUATION)
    body = body_of(ALTERNATE, request)
    assert Counter().request(body["messages"], ()) <= Counter().sent(shaped(ALTERNATE, request))
    assert all(a["role"] != b["role"] for a, b in pairwise(body["messages"]))
