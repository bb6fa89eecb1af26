"""The command line: `main` runs a verb. An error is one line on stderr that says what to do."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import entry_points

import typer

from anchorwatch.cli.render import SafeStream
from anchorwatch.cli.verb import APP, PROGRAM
from anchorwatch.core.errors import AnchorWatchError

USAGE = 2
INTERRUPTED = 130
TRACEBACK = "ANCHORWATCH_TRACEBACK"
NOUNS = (
    "mesh",
    "sessions",
    "orders",
    "kill_switches",
    "schedules",
    "agents",
    "requests",
    "effects",
    "events",
    "models",
    "journal",
    "dead_letters",
    "installation",
)
"""The modules that add the verbs, in the order of the help."""
VERBS = "anchorwatch.verbs"
"""The entry-point group of functions that add verbs of packs to the command line."""
COMPLETION = f"_{PROGRAM.upper()}_COMPLETE"


@functools.cache
def build() -> typer.Typer:
    """The program with all verbs."""
    for name in NOUNS:
        import_module(f"anchorwatch.cli.{name}")
    for entry in sorted(entry_points(group=VERBS)):
        entry.load()(APP)
    return APP


@functools.cache
def _command() -> Callable[..., object]:
    """The program, compiled: typer would compile it again for each call, which takes a tenth of a second."""
    return typer.main.get_command(build())


def main(arguments: list[str] | None = None) -> int:
    """Run a verb; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if len(words) == 2 and words[0] == "serve" and not words[1].startswith("-"):  # noqa: PLR2004 - verb and service
        # The supervisor starts seven processes this way at once: none of them needs the other verbs.
        from anchorwatch.service import runner

        return runner.main(words[1])
    with _safe_output():
        return _run(words)


def _run(words: list[str]) -> int:
    if not words and COMPLETION not in os.environ:
        _command()(["--help"], prog_name=PROGRAM, standalone_mode=False)
        return USAGE
    try:
        result = _command()(words, prog_name=PROGRAM, standalone_mode=False)
        # Flushed here, where a closed pipe can be distinguished from a failure.
        sys.stdout.flush()
    except AnchorWatchError as error:
        return fail(str(error), error.exit_code)
    except typer.exceptions.TyperException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else PROGRAM
        return fail(f"{error.format_message().rstrip('.')} (see `{path} --help`)", USAGE)
    except (typer.exceptions.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (BrokenPipeError, SystemExit) as end:
        return _reader_gone(end)
    except Exception as error:
        # A fault of this program: a line for people, the traceback for those who repair it.
        if os.environ.get(TRACEBACK):
            raise
        return fail(f"internal error: {error!r} (please report it; {TRACEBACK}=1 prints the traceback)", 1)
    return result if isinstance(result, int) else 0


@contextlib.contextmanager
def _safe_output() -> Iterator[None]:
    """Let nothing that a verb or a library prints control the terminal: much of it was written by models and strangers."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = SafeStream(sys.stdout), SafeStream(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _reader_gone(end: BrokenPipeError | SystemExit) -> int:
    """The reader of our output has closed the pipe (`| head`): not a failure.

    While a verb still writes, typer makes a `SystemExit` of it.
    """
    if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
        raise end
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
    return 0


def fail(message: str, code: int) -> int:
    """Print an error, in one line."""
    line = " ".join(message.split())
    sys.stderr.write(f"{PROGRAM}: {line}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
