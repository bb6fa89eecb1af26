"""``anchorwatch crash-test``: its seeds in turn, each in its own directory, and their outcome."""

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
KILLS_A_LINE = 10


@dataclass(frozen=True, slots=True)
class Options:
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
    """Prints a line after every `KILLS_A_LINE` kills."""

    kills: int = 0

    def note(self, kill: Kill) -> None:
        """Count a kill."""
        self.kills += 1
        if self.kills % KILLS_A_LINE == 0:
            self(f"  {self.kills} killed; the last: {kill.instance} at {kill.edge or 'random'}")


def run(options: Options) -> int:
    """Run the test; returns 0 if every promise was kept, else 1.

    Raises:
        BadInput: the subject or the directory cannot be used.
    """
    subject = choose(options.pack, options.agent)
    root = _directory(options.data_dir)
    kept = options.keep or options.data_dir is not None
    console = Progress(options.as_json)
    first = secrets.randbelow(SEED_MAX) if options.seed is None else options.seed
    console(
        f"crash test of {subject.agent.name}, an agent of the pack {subject.pack.name}: {_seeds(options, first)}"
    )
    with ended_by_signals():
        try:
            trials = [_trial(subject, seed, root, console) for seed in range(first, first + options.seeds)]
        finally:
            with undisturbed():
                if not kept:
                    shutil.rmtree(root, ignore_errors=True)
    if kept:
        console(f"the data is kept in {root}")
    where = str(root) if kept else None
    return console.conclude(
        report.outcome(subject.pack.name, subject.agent.name, trials, _again(options), where)
    )


def _trial(subject: Subject, seed: int, root: Path, console: Progress) -> Trial:
    directory = root / f"seed-{seed}"
    directory.mkdir(parents=True)
    trial = asyncio.run(run_trial(subject, seed, directory, console.note))
    verdict = "no promise broken" if trial.ok else f"{len(trial.violations) + len(trial.crashes)} broken"
    work = f"{trial.turns} turns, {trial.commands} commands"
    console(f"seed {seed}: {trial.kills} killed, at {len(trial.reached)} edges; {work}; {verdict}")
    return trial


def _directory(wanted: Path | None) -> Path:
    """The directory of all meshes.

    Raises:
        BadInput: it is not empty, or cannot be used.
    """
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="anchorwatch-crash-test-"))
    root = wanted.expanduser().absolute()
    try:
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()):
            raise BadInput(f"{root} is not empty", hint="a crash test needs an empty directory")
    except OSError as error:
        raise BadInput(f"{root} cannot be used: {error.strerror}", hint="choose another --data-dir") from None
    return root


def _seeds(options: Options, first: int) -> str:
    return f"seed {first}" if options.seeds == 1 else f"seeds {first} to {first + options.seeds - 1}"


def _again(options: Options) -> str:
    words = ["anchorwatch", "crash-test"]
    words += ["--pack", options.pack] if options.pack else []
    words += ["--agent", str(options.agent)] if options.agent else []
    return shlex.join(words)
