"""The command line: `main` runs a verb; its errors are one line each, with the way out."""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points

import typer

from anchorwatch.cli.options import takes_no_address
from anchorwatch.core.errors import AnchorWatchError

PROGRAM = "anchorwatch"
VERBS = "anchorwatch.verbs"
"""The entry-point group of functions that add verbs of packs to the command line."""
USAGE = 2
INTERRUPTED = 130
TRACEBACK = "ANCHORWATCH_TRACEBACK"
ADDRESS_OPTIONS = ("--url", "--token")


def build() -> typer.Typer:
    """The verbs."""
    from anchorwatch.cli import (
        control_verbs,
        effect_verbs,
        journal_verbs,
        kill_verbs,
        letter_verbs,
        list_verbs,
        mesh_verbs,
        model_verbs,
        own_verbs,
        reset_verbs,
        schedule_verbs,
        session_verbs,
        showing_verbs,
    )

    app = typer.Typer(
        name=PROGRAM,
        help="Anchor Watch: autonomous agents on real systems, made safe to leave alone.",
        add_completion=False,
        context_settings={"max_content_width": 110},
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    for module in (
        mesh_verbs,
        session_verbs,
        control_verbs,
        reset_verbs,
        kill_verbs,
        schedule_verbs,
        showing_verbs,
        effect_verbs,
        list_verbs,
        model_verbs,
        journal_verbs,
        letter_verbs,
        own_verbs,
    ):
        module.add_to(app)
    for entry in sorted(entry_points(group=VERBS)):
        entry.load()(app)
    return app


def main(arguments: list[str] | None = None) -> int:
    """Run a verb; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if len(words) == 2 and words[0] == "serve" and not words[1].startswith("-"):  # noqa: PLR2004 - verb and service
        # Seven processes start so at once: none of them needs the other verbs.
        from anchorwatch.service import runner

        return runner.main(words[1])
    if not words:
        build()(["--help"], prog_name=PROGRAM, standalone_mode=False)
        return USAGE
    try:
        result = build()(words, prog_name=PROGRAM, standalone_mode=False)
        # Flushed here, where a closed pipe can still be told from a failure.
        sys.stdout.flush()
    except AnchorWatchError as error:
        return fail(str(error), error.exit_code)
    except typer.exceptions.TyperException as error:
        context = getattr(error, "ctx", None)
        said = error.format_message().rstrip(".")
        path = context.command_path if context is not None else PROGRAM
        option = getattr(error, "option_name", "")
        if option in ADDRESS_OPTIONS:
            return fail(str(takes_no_address(path.removeprefix(PROGRAM).strip(), option)), USAGE)
        return fail(f"{said} (see `{path} --help`)", USAGE)
    except (typer.exceptions.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (BrokenPipeError, SystemExit) as end:
        return _unheard(end)
    except Exception as error:
        # A fault of this program. People get a line, and those who mend it the rest.
        if os.environ.get(TRACEBACK):
            raise
        return fail(f"internal error: {error!r} (please report it; {TRACEBACK}=1 shows where)", 1)
    return result if isinstance(result, int) else 0


def _unheard(end: BrokenPipeError | SystemExit) -> int:
    """Whoever read our output has had enough of it (`| head`): no failure, and nothing more to say.

    While a verb still writes, typer makes a `SystemExit` of it.
    """
    if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
        raise end
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
    return 0


def fail(message: str, code: int) -> int:
    """Say what went wrong, in one line."""
    line = " ".join(message.split())
    sys.stderr.write(f"{PROGRAM}: {line}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
