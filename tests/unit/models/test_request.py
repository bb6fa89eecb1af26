"""What is sent is fit to be sent, whatever a history holds."""

import json
from typing import Any

import pytest
from anchorwatch.models.arguments import read_arguments
from anchorwatch.models.request import prepare


def past(arguments: Any) -> dict[str, Any]:
    call = {"id": "1", "type": "function", "function": {"name": "a", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def sent_arguments(arguments: Any) -> Any:
    messages, _ = prepare([past(arguments)], ())
    return json.loads(messages[0]["tool_calls"][0]["function"]["arguments"])


def test_good_arguments_are_sent_as_they_are() -> None:
    messages, _ = prepare([past('{"n":  1}')], ())
    assert messages[0]["tool_calls"][0]["function"]["arguments"] == '{"n":  1}'


def test_bad_arguments_of_the_past_are_sent_as_data() -> None:
    assert sent_arguments('{"n": ') == {"invalid_arguments": '{"n": '}
    assert sent_arguments("[]") == {"invalid_arguments": "[]"}
    assert sent_arguments("[" * 100_000) == {"invalid_arguments": "[" * 800}
    assert sent_arguments(None) == {"invalid_arguments": "None"}
    assert sent_arguments({"n": 1}) == {"n": 1}


@pytest.mark.parametrize(
    "arguments", ['{"n": NaN}', '{"n": 1, "n": 2}', '{"n": 99999999999999999999}', {"n": float("inf")}]
)
def test_past_arguments_that_servers_read_differently_are_data(arguments: Any) -> None:
    sent = sent_arguments(arguments)
    assert sent == {"invalid_arguments": str(arguments)}
    assert read_arguments(sent) == sent


def test_empty_assistant_message_is_not_sent() -> None:
    messages, _ = prepare(
        [{"role": "assistant", "content": None}, {"role": "assistant", "content": "", "tool_calls": []}], ()
    )
    assert messages == []


def test_null_content_is_sent_as_empty_text() -> None:
    messages, _ = prepare([past("{}")], ())
    assert messages[0]["content"] == ""


def test_strings_are_cleaned_everywhere_and_the_original_is_kept() -> None:
    message = {"role": "tool", "tool_call_id": "1", "content": "a\0b\ud83d\ude00\ud800"}
    tool = {
        "type": "function",
        "function": {"name": "a", "description": "\ud800", "parameters": {"enum": ("\0",)}},
    }
    messages, tools = prepare([message], [tool])
    assert messages[0]["content"] == "a\ufffdb😀\ufffd"
    assert tools[0]["function"] == {"name": "a", "description": "\ufffd", "parameters": {"enum": ["\ufffd"]}}
    assert message["content"] == "a\0b\ud83d\ude00\ud800"
