"""Thinking is not an answer; a mention of its tags is."""

import pytest
from anchorwatch.models.thinking import strip_thinking
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("plain", "plain"),
        ("  plain\n", "plain"),
        ("<think>hm</think>Launch.", "Launch."),
        ("<think>\nhm\n</think>\n\nLaunch.", "Launch."),
        ("<Think>hm</THINK>Launch.", "Launch."),
        ("<thinking>hm</thinking>Launch.", "Launch."),
        ("hm, the template opened it</think>Launch.", "Launch."),
        ("hm <think> again</think>Launch.", "hm Launch."),
        ("<think>cut in the middle of", ""),
        ("Launch.<think>cut", "Launch."),
        ("<think></think>", ""),
        ("<think>a</think>One. <think>b</think>Two.", "One. Two."),
        ("<think>it may print </think>", ""),
        ("The tag `<think>` opens it.", "The tag `<think>` opens it."),
        ('The tag "</think>" closes it.', 'The tag "</think>" closes it.'),
        ("```\n<think>x</think>\n```", "```\n<think>x</think>\n```"),
        ("<think>I could write '</think>' here</think>Done.", "Done."),
        ("<think>a lone ` in thought</think>Done.", "Done."),
        ("a lone ``` in thought</think>Done.", "Done."),
        ("1 < 2 and <b>bold</b>", "1 < 2 and <b>bold</b>"),
    ],
)
def test_thinking_is_taken_out(said: str, meant: str) -> None:
    assert strip_thinking(said) == meant


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "`", "```", '"', "x", " ", "\n", "<"]), max_size=30).map(
        "".join
    )
)
def test_tags_in_any_order_leave_a_part_of_the_text(said: str) -> None:
    assert len(strip_thinking(said)) <= len(said)


def test_megabyte_of_tags_takes_no_time() -> None:
    assert strip_thinking("<think>" * 150_000) == ""
    assert strip_thinking("</think>" * 130_000) == ""
    assert strip_thinking("<think>x</think>" * 60_000) == ""
    assert strip_thinking("`" * 100_000 + "</think>done").endswith("done")
