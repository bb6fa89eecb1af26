"""Counts tokens: one counter for the budget, the cut and the check before sending.

The ranks come from files of this package (`ranks/`), and only when their SHA-256 is the published one: no network, no
cache directory. A count covers the request as sent: each string of each message, the chat template's
framing, the tool schemas, and the nudge after an empty answer. For a model whose vocabulary is not
carried, it is an estimate with a stated safety ratio.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import re
from binascii import a2b_base64
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.util import find_spec
from itertools import pairwise
from threading import Lock
from typing import Any

from anchorwatch.core.errors import Damaged
from anchorwatch.core.memo import ByIdentity
from anchorwatch.models.port import PAST_REMEMBERED, TOOLS_REMEMBERED, Chat, ModelRequest
from anchorwatch.models.request import prepare

REQUEST_TOKENS = 40
"""Opens the answer (3), and leaves room for the nudge after an empty one."""
MESSAGE_TOKENS = 4
"""Around each message; its role is counted apart. OpenAI adds 3, ChatML 4."""
CALL_TOKENS = 16
"""Around each tool call of the past, such as ``<tool_call>{"name": …, "arguments": …}</tool_call>``."""
TOOLS_TOKENS = 128
"""What a chat template says before the first tool schema; once a request."""
TOOL_TOKENS = 4
"""Around each tool schema."""

ESTIMATE_RATIO = 1.4
"""The widest gap measured between o200k and the vocabulary of another family of models (14 tokens to 10)."""

# From a million white-space characters in one run the encoder panics (its regular expression runs out of stack).
WHITE_RUN_CHARS_MAX = 100_000
_WHITE_RUN = re.compile(rf"\s{{{WHITE_RUN_CHARS_MAX}}}(?=\s)")

CACHE_ENTRIES_MAX = 8_192
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """An included vocabulary: the published SHA-256 of its rank file, and the pattern that splits text."""

    name: str
    sha256: str
    pattern: str


O200K = Vocabulary(
    "o200k_base",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "|".join(  # noqa: FLY002 - seven alternatives, each on its line
        (
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        )
    ),
)
CL100K = Vocabulary(
    "cl100k_base",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
)
# Harmony is o200k with more control tokens, and those never come out of plain text.
_BY_ENCODING = {O200K.name: O200K, "o200k_harmony": O200K, CL100K.name: CL100K}


def load_ranks(vocabulary: Vocabulary) -> dict[bytes, int]:
    """The rank of each token of a vocabulary.

    Raises:
        Damaged: the file is missing, or is not the published one.
    """
    file = resources.files("anchorwatch.models") / "ranks" / f"{vocabulary.name}.tiktoken.gz"
    try:
        data = gzip.decompress(file.read_bytes())
    except (OSError, EOFError) as error:
        raise Damaged(
            f"the token ranks {vocabulary.name} cannot be read: {error}", hint="reinstall anchorwatch"
        ) from None
    if hashlib.sha256(data).hexdigest() != vocabulary.sha256:
        raise Damaged(
            f"the token ranks {vocabulary.name} are not the published ones", hint="reinstall anchorwatch"
        )
    return {a2b_base64(token): int(rank) for token, rank in (line.split() for line in data.splitlines())}


class Encoder:
    """Counts the tokens of plain text in one vocabulary, and remembers what it counted."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        import tiktoken  # noqa: PLC0415 - 30 ms that only those pay who count

        # No special tokens: text that spells one, such as <|endoftext|>, is text.
        self._encoding = tiktoken.Encoding(
            vocabulary.name,
            pat_str=vocabulary.pattern,
            mergeable_ranks=load_ranks(vocabulary),
            special_tokens={},
        )
        self._counted: OrderedDict[bytes, int] = OrderedDict()
        self._lock = Lock()

    def count(self, text: str) -> int:
        """Tokens of the text. One that was counted before costs a hash (1 ms for 1 MB)."""
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()
        with self._lock:
            known = self._counted.get(key)
            if known is not None:
                self._counted.move_to_end(key)
                return known
        tokens = self._encode(text)
        with self._lock:
            self._counted[key] = tokens
            if len(self._counted) > CACHE_ENTRIES_MAX:
                self._counted.popitem(last=False)
        return tokens

    def _encode(self, text: str) -> int:
        if len(text) <= WHITE_RUN_CHARS_MAX:
            return len(self._encoding.encode_ordinary(text))
        return sum(len(self._encoding.encode_ordinary(part)) for part in _parts(text))


def _parts(text: str) -> list[str]:
    """The text, split inside overlong runs of white space. A split may add a token but never removes one."""
    cuts = [0, *(found.end() for found in _WHITE_RUN.finditer(text)), len(text)]
    return [text[start:end] for start, end in pairwise(cuts)]


@cache
def encoder(vocabulary: Vocabulary) -> Encoder:
    """The one encoder of a vocabulary. Loaded at first use: 0.3 s, 60 MB.

    Raises:
        Damaged: see `load_ranks`.
    """
    return Encoder(vocabulary)


def load_counter() -> None:
    """Load the ranks that most counts need; without this, the first count does. Does nothing without the extra `models`."""
    if find_spec("tiktoken") is not None:
        encoder(O200K)


@dataclass(frozen=True, slots=True)
class Counter:
    """Counts requests for one model. ``ratio`` multiplies the sum; ``estimate``: the vocabulary is not the model's own.

    A vocabulary of the model's family gives an upper bound (schemas are counted as JSON, and endpoints render them shorter).
    """

    vocabulary: Vocabulary = O200K
    ratio: float = 1.0
    estimate: bool = False

    @property
    def described(self) -> str:
        """The method, for people."""
        return (
            f"{self.vocabulary.name} × {self.ratio:g}, an estimate" if self.estimate else self.vocabulary.name
        )

    def request(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> int:
        """Tokens of the whole request, rounded up.

        Raises:
            Damaged: the ranks are missing or altered.
        """
        total = REQUEST_TOKENS + sum(map(self.message, messages)) + self.tools(tools)
        return math.ceil(total * self.ratio)

    def sent(self, request: ModelRequest) -> int:
        """Tokens of a request as sent; past turns and tools are counted once and cached.

        Raises:
            Damaged: as `request`.
        """
        messages, _ = prepare((*request.opening, *request.now), ())
        past = sum(map(_past_counter(self.vocabulary), request.past))
        tools = _tools_counter(self.vocabulary)(request.tools)
        return math.ceil((REQUEST_TOKENS + past + sum(map(self.message, messages)) + tools) * self.ratio)

    def message(self, message: Mapping[str, Any]) -> int:
        """Tokens of one message and its framing, before the ratio."""
        total = MESSAGE_TOKENS
        for key, value in message.items():
            if key in {"content", "tool_calls"} and isinstance(value, (list, tuple)):
                total += sum(self._part(part) for part in value)
            else:
                total += self._value(value)
        return total

    def tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """Tokens of the tool schemas as JSON, before the ratio; 0 when there are none."""
        if not tools:
            return 0
        return TOOLS_TOKENS + sum(TOOL_TOKENS + self._value(tool) for tool in tools)

    def text(self, text: str) -> int:
        """Tokens of plain text, before the ratio."""
        return encoder(self.vocabulary).count(text)

    def _part(self, part: object) -> int:
        match part:
            case {"function": {"name": str(name), "arguments": str(arguments)}, **rest}:
                return CALL_TOKENS + self.text(name) + self.text(arguments) + self._value(rest.get("id"))
            case {"type": "text", "text": str(text)}:
                return self.text(text)
            case _:
                return self._value(part)

    def _value(self, value: object) -> int:
        match value:
            case None:
                return 0
            case str():
                return self.text(value)
            case _:
                return self.text(json.dumps(value, ensure_ascii=False, default=str))


@cache
def _past_counter(vocabulary: Vocabulary) -> ByIdentity[Sequence[Chat], int]:
    counter = Counter(vocabulary)
    return ByIdentity(lambda past: sum(map(counter.message, prepare(past, ())[0])), PAST_REMEMBERED)


@cache
def _tools_counter(vocabulary: Vocabulary) -> ByIdentity[Sequence[Mapping[str, Any]], int]:
    counter = Counter(vocabulary)
    return ByIdentity(lambda tools: counter.tools(prepare((), tools)[1]), TOOLS_REMEMBERED)


def counter_for(model_name: str) -> Counter:
    """The counter of a model, by its name; a provider before a slash does not matter. Unknown: o200k, with `ESTIMATE_RATIO`."""
    from tiktoken.model import encoding_name_for_model  # noqa: PLC0415 - see Encoder

    try:
        known = _BY_ENCODING.get(encoding_name_for_model(model_name.rpartition("/")[2]))
    except KeyError:
        known = None
    return Counter(known) if known is not None else Counter(O200K, ESTIMATE_RATIO, estimate=True)
