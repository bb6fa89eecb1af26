"""One request, one answer, over the `openai` SDK: sent, read within its bounds, and validated.

The SDK sends and closes. Validation, retries and the detection of truncated streams are ours, because the SDK validates
nothing, retries by itself, and treats a truncated stream as complete.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import openai

from anchorwatch.models.endpoint import Endpoint
from anchorwatch.models.faults import Fault, fault_of, parse_body, retry_after_s
from anchorwatch.models.port import ModelReply, ModelUnavailable
from anchorwatch.models.reply import Form, read_reply
from anchorwatch.models.request import JsonObject
from anchorwatch.models.stream import BrokenStream, Stream
from anchorwatch.models.text import brief
from anchorwatch.models.usage import Usage

BODY_BYTES_MAX = 8 * 1024 * 1024
TAIL_S_MAX = 5.0
"""How long a stream is read after its finish reason, for usage and ``[DONE]``."""
CLOSING_S_MAX = 0.2
"""How long to wait for the end of the body after ``[DONE]``: a fully read body keeps its connection reusable."""
NO_KEY = "none"
"""The SDK requires a key; local servers do not."""
SLOW_HINT = "ANCHORWATCH_MODEL_FIRST_TOKEN_S and ANCHORWATCH_MODEL_BETWEEN_TOKENS_S set these timeouts"
CUT_HINT = "if it always does, set stream = false in its profile"


@dataclass(slots=True)
class _Progress:
    """How far an answer has come. ``begun``: the endpoint has accepted the request."""

    begun: bool = False
    stream: Stream | None = None

    @property
    def usage(self) -> Usage | None:
        """The usage of an answer that breaks off now; None: it has not begun."""
        if not self.begun:
            return None
        return self.stream.usage if self.stream else Usage()


class Exchange:
    """Exchanges requests with one endpoint, over at most ``connections`` connections."""

    def __init__(self, endpoint: Endpoint, connections: int) -> None:
        self._endpoint = endpoint
        patience = endpoint.patience
        timeout = httpx2.Timeout(patience.total_s, connect=patience.connect_s)
        self._client = openai.AsyncOpenAI(
            api_key=endpoint.key or NO_KEY,
            base_url=endpoint.url,
            max_retries=0,
            timeout=timeout,
            http_client=httpx2.AsyncClient(
                # A redirected POST becomes a GET, and a key must not be forwarded.
                follow_redirects=False,
                limits=httpx2.Limits(max_connections=connections, max_keepalive_connections=connections),
                timeout=timeout,
            ),
        )
        # Values that the SDK finds in the environment belong to another account than the configured key.
        self._client.organization = None
        self._client.project = None

    async def ask(self, body: JsonObject, form: Form) -> ModelReply:
        """Send the body and read the answer. A cancellation closes the connection.

        Raises:
            ModelUnavailable: no usable answer; another attempt may get one. ModelRefused, ContextOverflow.
        """
        progress = _Progress()
        sent = dict(body)
        if self._endpoint.profile.stream:
            sent["stream"] = True
            if self._endpoint.profile.stream_usage:
                sent["stream_options"] = {"include_usage": True}
        try:
            asking = self._streamed(sent, progress) if "stream" in sent else self._whole(sent, progress)
            content = await asking
        # Nothing is chained: these errors carry the request, and the request carries the key.
        except openai.APIStatusError as error:
            raise self._refused(error, form) from None
        except ModelUnavailable as error:
            fault = error
        except BrokenStream as error:
            fault = ModelUnavailable(f"{self._endpoint.place} {error}", hint=CUT_HINT)
        # ValueError: the SDK reads the text of an error in the charset that its header claims, and fails when it is not.
        except (openai.OpenAIError, httpx2.HTTPError, OSError, ValueError) as error:
            fault = ModelUnavailable(self._why(error))
            progress.begun |= isinstance(error.__cause__, httpx2.ReadTimeout)
        else:
            return read_reply(
                content,
                completion_tokens_max=self._endpoint.completion_tokens_max,
                form=form,
                redact=self._endpoint.redact,
                secret=self._endpoint.key,
                place=self._endpoint.place,
            )
        fault.usage = progress.usage
        raise fault from None

    async def close(self) -> None:
        await self._client.close()

    async def _whole(self, sent: JsonObject, progress: _Progress) -> bytes:
        """The body of a whole answer, read in pieces to bound it."""
        parts: list[bytes] = []
        async with self._parts(sent, progress) as coming:
            async for part in coming:
                parts.append(part)  # noqa: PERF401 - a comprehension over it would hide that it waits
        return b"".join(parts)

    async def _streamed(self, sent: JsonObject, progress: _Progress) -> bytes:
        """The body of the answer assembled from a stream, or the body received in place of a stream."""
        patience, now = self._endpoint.patience, asyncio.get_running_loop().time
        stream = progress.stream = Stream(self._endpoint.profile.reasoning_field)
        parts: list[bytes] = []
        try:
            async with (
                asyncio.timeout(patience.first_token_s) as limit,
                self._parts(sent, progress) as coming,
            ):
                phase = stream.phase
                async for part in coming:
                    parts.append(part)
                    stream.feed(part)
                    if stream.phase != phase:
                        # Keep-alive comments do not extend the wait.
                        phase = stream.phase
                        limit.reschedule(now() + self._wait_s(stream))
        except TimeoutError:
            if limit.expired() and not (stream.finished or stream.ended):
                waited_s = patience.between_tokens_s if stream.begun else patience.first_token_s
                # The endpoint has the request, and may be answering it.
                progress.begun = True
                what = "nothing more" if stream.begun else "nothing of an answer"
                raise ModelUnavailable(
                    f"{self._endpoint.place} sent {what} for {waited_s:g} s", hint=SLOW_HINT
                ) from None
            if not limit.expired():
                raise
        except httpx2.HTTPError:
            # Only the optional tail of a complete answer was missing.
            if not (stream.finished or stream.ended):
                raise
        whole = stream.close()
        return b"".join(parts) if whole is None else whole

    def _wait_s(self, stream: Stream) -> float:
        """The timeout for the next part."""
        patience = self._endpoint.patience
        if stream.ended:
            return CLOSING_S_MAX
        return min(TAIL_S_MAX, patience.between_tokens_s) if stream.finished else patience.between_tokens_s

    @contextlib.asynccontextmanager
    async def _parts(self, sent: JsonObject, progress: _Progress) -> AsyncIterator[AsyncIterator[bytes]]:
        """The body of the response, in pieces as they arrive."""
        messages, model = sent.pop("messages"), sent.pop("model")
        create = self._client.chat.completions.with_streaming_response.create
        async with create(messages=messages, model=model, extra_body=sent) as response:
            progress.begun = True
            yield self._bounded(response.iter_bytes())

    async def _bounded(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        left = BODY_BYTES_MAX
        async for part in parts:
            left -= len(part)
            if left < 0:
                raise ModelUnavailable(
                    f"{self._endpoint.place} answered with more than {BODY_BYTES_MAX // 1024**2} MiB"
                )
            yield part

    def _refused(self, error: openai.APIStatusError, form: Form) -> Fault:
        headers: Mapping[str, str] = error.response.headers
        return fault_of(
            error.status_code,
            parse_body(error.response.content),
            redact=self._endpoint.redact,
            retry_after_s=retry_after_s(headers),
            place=self._endpoint.place,
            words=form.overflow_words,
        )

    def _why(self, error: Exception) -> str:
        cause: Any = error.__cause__ or error
        text = self._endpoint.redact(brief(str(cause)))
        return f"{self._endpoint.place} did not answer: {type(cause).__name__}" + (
            f": {text}" if text else ""
        )
