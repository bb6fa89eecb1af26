"""Two counting receivers of notifications: one that deduplicates (a webhook) and one that does not (a file)."""

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

WEBHOOK = "hook"
FILE = "papers"
CHANNELS = (WEBHOOK, FILE)
SECRET_BYTES = 24


@dataclass
class Receivers:
    """Open for a ``with`` block. ``directory``: for the routes (`routes`) and the file."""

    directory: Path
    _hook: Receiver = field(init=False)

    def __post_init__(self) -> None:
        self._secret = f"whsec_{base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()}"
        self._hook = Receiver(self._secret)

    @property
    def routes(self) -> Path:
        """The file for the setting ``notify``."""
        return self.directory / "notify.toml"

    def __enter__(self) -> Self:
        self._hook.__enter__()
        lines = (
            f'[[channel]]\nname = "{WEBHOOK}"\nkind = "webhook"\nurl = "{self._hook.url}"\nsecret = "{self._secret}"',
            'on = ["turn_ended"]',
            f'[[channel]]\nname = "{FILE}"\nkind = "file"\npath = "{FILE}.jsonl"\non = ["turn_ended"]\n',
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
        """The deliveries so far."""
        hook = Counter(each.webhook_id for each in self._hook.arrivals if each.accepted)
        return (
            Arrivals(WEBHOOK, hook, deduplicates=True),
            Arrivals(FILE, self._file_lines(), deduplicates=False),
        )

    def _file_lines(self) -> Counter[str]:
        file = self.directory / f"{FILE}.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return Counter(str(json.loads(line)["id"]) for line in lines if line)
