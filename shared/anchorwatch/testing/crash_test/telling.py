"""Two receivers of notifications: one that deduplicates (a webhook) and one that does not (a file). Both count."""

from __future__ import annotations

import base64
import json
import secrets
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from anchorwatch.mesh.files import write_private
from anchorwatch.testing.checks import Arrivals
from anchorwatch.testing.receiver import Receiver

HOOK = "hook"
PAPERS = "papers"
CHANNELS = (HOOK, PAPERS)
SECRET_BYTES = 24


@dataclass
class Receivers:
    """Open while the block lasts. ``directory``: where the routes (`routes`) and the file are written."""

    directory: Path
    _hook: Receiver = field(init=False)

    def __post_init__(self) -> None:
        self._secret = f"whsec_{base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()}"
        self._hook = Receiver(self._secret)

    @property
    def routes(self) -> Path:
        """For the setting ``notify``."""
        return self.directory / "notify.toml"

    def __enter__(self) -> Self:
        self._hook.__enter__()
        lines = (
            f'[[channel]]\nname = "{HOOK}"\nkind = "webhook"\nurl = "{self._hook.url}"\nsecret = "{self._secret}"',
            'on = ["turn_ended"]',
            f'[[channel]]\nname = "{PAPERS}"\nkind = "file"\npath = "{PAPERS}.jsonl"\non = ["turn_ended"]\n',
        )
        self.directory.mkdir(parents=True, exist_ok=True)
        write_private(self.routes, "\n".join(lines))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._hook.__exit__(kind, error, where)

    @property
    def arrivals(self) -> tuple[Arrivals, ...]:
        """What has arrived so far."""
        hook = Counter(each.webhook_id for each in self._hook.arrivals if each.accepted)
        return (
            Arrivals(HOOK, hook, deduplicates=True),
            Arrivals(PAPERS, self._papers(), deduplicates=False),
        )

    def _papers(self) -> Counter[str]:
        file = self.directory / f"{PAPERS}.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return Counter(str(json.loads(line)["id"]) for line in lines if line)
