"""``anchorwatch crash-test``: its seeds one after the other, each in a directory of its own, and what came of all."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from anchorwatch.core.errors import BadInput
from anchorwatch.testing.console import Console, ended_by_signals, undisturbed
from anchorwatch.testing.crash_test import report
from anchorwatch.testing.crash_test.subject import Subject, choose
from anchorwatch.testing.crash_test.trial import Trial, run_trial
from anchorwatch.testing.harness import Kill

SEED_MAX = 2**32
TELL_EVERY = 10


@dataclass(frozen=True, slots=True)
class Wish:
    """The verb's options."""

    pack: str | None
    agent: Path | None
    seeds: int
    seed: int | None
    data_dir: Path | None
    keep: bool
    as_json: bool


@dataclass
class Progress(Console):
    """Prints a line after every `TELL_EVERY` kills."""

    kills: int = 0

    def note(self, kill: Kill) -> None:
        """A process was killed."""
        self.kills += 1
        if self.kills % TELL_EVERY == 0:
            self(f"  {self.kills} killed; the last: {kill.instance} at {kill.edge or 'random'}")


def run(wish: Wish) -> int:
    """Run it; returns 0 when every promise was kept, else 1.

    Raises:
        BadInput: the subject or the directory cannot be used.
    """
    subject = choose(wish.pack, wish.agent)
    root = _directory(wish.data_dir)
    kept = wish.keep or wish.data_dir is not None
    tell = Progress(wish.as_json)
    first = secrets.randbelow(SEED_MAX) if wish.seed is None else wish.seed
    tell(
        f"crash test of {subject.agent.name}, an agent of the pack {subject.pack.name}: {_seeds(wish, first)}"
    )
    with ended_by_signals():
        try:
            trials = [_trial(subject, seed, root, tell) for seed in range(first, first + wish.seeds)]
        finally:
            with undisturbed():
                if not kept:
                    shutil.rmtree(root, ignore_errors=True)
    if kept:
        tell(f"the data are kept in {root}")
    where = str(root) if kept else None
    return tell.conclude(report.outcome(subject.pack.name, subject.agent.name, trials, _again(wish), where))


def _trial(subject: Subject, seed: int, root: Path, tell: Progress) -> Trial:
    directory = root / f"seed-{seed}"
    directory.mkdir(parents=True)
    trial = asyncio.run(run_trial(subject, seed, directory, tell.note))
    verdict = "every promise kept" if trial.ok else f"{len(trial.violations) + len(trial.crashes)} broken"
    work = f"{trial.turns} turns, {trial.commands} commands"
    tell(f"seed {seed}: {trial.kills} killed, at {len(trial.reached)} edges; {work}; {verdict}")
    return trial


def _directory(wanted: Path | None) -> Path:
    """Where everything goes.

    Raises:
        BadInput: something is there already, or nothing can be made there.
    """
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="anchorwatch-crash-test-"))
    root = wanted.expanduser().absolute()
    try:
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()):
            raise BadInput(f"{root} is not empty", hint="a crash test needs a directory of its own")
    except OSError as error:
        raise BadInput(f"{root} cannot be used: {error.strerror}", hint="choose another --data-dir") from None
    return root


def _seeds(wish: Wish, first: int) -> str:
    return f"seed {first}" if wish.seeds == 1 else f"seeds {first} to {first + wish.seeds - 1}"


def _again(wish: Wish) -> str:
    words = ["anchorwatch", "crash-test"]
    words += ["--pack", wish.pack] if wish.pack else []
    words += ["--agent", str(wish.agent)] if wish.agent else []
    return shlex.join(words)
