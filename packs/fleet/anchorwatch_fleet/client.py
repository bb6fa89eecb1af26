"""Client of the yard, for the probes, the tools and the command line."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from anchorwatch.packs import AnchorWatchError, Bus, Unavailable

from anchorwatch_fleet.instances import Instance, instance_from_json
from anchorwatch_fleet.subjects import YARD

ASK_S = 2.0


class YardRefused(AnchorWatchError):
    """The yard refused a request. ``yard_code``: its error code."""

    code: ClassVar[str] = "yard_refused"
    exit_code: ClassVar[int] = 5

    def __init__(self, message: str, yard_code: str) -> None:
        super().__init__(message)
        self.yard_code = yard_code


class YardClient:
    """The yard's requests as calls."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def ask(self, verb: str, timeout_s: float = ASK_S, /, **args: object) -> dict[str, Any]:
        """One request, one answer.

        Raises:
            YardRefused: the yard refused, with the reason.
            Unavailable: no answer in time; *the request may have been carried out*.
        """
        payload = await self._bus.request(YARD.at(verb=verb), json.dumps(args).encode(), timeout_s)
        try:
            answer = json.loads(payload)
            ok = bool(answer.pop("ok"))
        except (ValueError, AttributeError, KeyError, TypeError):
            raise Unavailable("the yard's answer is invalid") from None
        if not ok:
            raise YardRefused(str(answer.get("message", "refused")), str(answer.get("code", "error")))
        return dict(answer)

    async def instances(self, timeout_s: float = ASK_S) -> list[Instance]:
        """Live instances and the latest ended ones, oldest first.

        Raises:
            YardRefused, Unavailable: as `ask`.
        """
        answer = await self.ask("list", timeout_s)
        return [instance_from_json(each) for each in answer["instances"]]
