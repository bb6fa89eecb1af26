"""``anchorwatch up``: start the mesh, print its addresses, and stay until it is stopped."""

from __future__ import annotations

import os
import shlex
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from anchorwatch.core.errors import AnchorWatchError, BadInput
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.launcher import Launcher
from anchorwatch.mesh.lock import refuse_if_held
from anchorwatch.mesh.mesh_settings import Resolved, resolve, shown
from anchorwatch.mesh.start import StartOptions, supervise
from anchorwatch.mesh.state import MeshFile, read_mesh
from anchorwatch.packs import registry
from anchorwatch.packs.port import Starter
from anchorwatch.service import hooks
from anchorwatch.service.variables import describe_unknown, unknown_variables
from anchorwatch.settings import Settings, load

NO_STARTER = (("agent", "agents apply FILE"), ("session", "sessions create NAME --agent AGENT"))
"""What to try when no installed pack brings an agent."""
NO_PACK = """\
  pack     none is installed, and an agent needs one: `pip install anchorwatch-fleet` adds the example,
           and docs/packs.md says how to write one. Restart the mesh afterwards.
"""


@dataclass(frozen=True, slots=True)
class Wish:
    """The verb's options."""

    port: int | None
    nats_port: int | None
    scale: tuple[str, ...]
    bare: bool
    detach: bool
    only: tuple[str, ...]
    new_settings: bool = False


def run(wish: Wish, data_dir: Path | None, programs: Mapping[str, tuple[str, ...]] | None = None) -> int:
    """Start it; returns the exit code. ``programs``: see `Roster`.

    Raises:
        AnchorWatchError: it cannot be started.
    """
    given = load(**({} if data_dir is None else {"data_dir": data_dir}))
    data = DataDir.at(given.data_dir)
    resolved = resolve(data, given, forget=wish.new_settings)
    settings = resolved.settings
    _check_model(settings)
    hooks.load(settings.hooks)
    counts = parse_counts(wish.scale)
    existed = data.root.exists()
    data.make()
    options = StartOptions(
        data=data,
        settings=settings,
        kept=resolved.kept,
        nats_port=wish.nats_port,
        port=wish.port,
        counts=counts,
        bare=wish.bare,
        only=wish.only,
        programs=programs or {},
        version=version("anchorwatch"),
    )
    refuse_if_held(data)
    print("\n".join([f"Starting Anchor Watch on {data.root}", *_about_settings(resolved)]), flush=True)
    launcher = Launcher(lambda report: supervise(options, report), data.log("supervisor"), detach=wish.detach)
    code = _follow(launcher, data, settings, wish)
    if code and not existed:
        data.remove_unused()
    return code


def parse_counts(words: tuple[str, ...]) -> dict[str, int]:
    """``NAME=N`` words.

    Raises:
        BadInput: a word has another form.
    """
    counts = {}
    for word in words:
        name, equals, number = word.partition("=")
        if not equals or not number.isdecimal():
            raise BadInput(f"--scale {word!r} is not NAME=N", hint="for example --scale executor=3")
        counts[name] = int(number)
    return counts


def _about_settings(resolved: Resolved) -> list[str]:
    """Lines about unknown variables, about settings that this shell does not set, and about changed settings."""
    lines = [describe_unknown(*each) for each in unknown_variables().items()]
    kept = (f"{name}={shown(name, resolved.kept.variables[name].value)}" for name in resolved.not_here)
    if resolved.not_here:
        lines.append(f"settings of the last start: {', '.join(kept)} (--new-settings drops them)")
    lines += [f"changed setting: {change}" for change in resolved.changes]
    return lines


def _check_model(settings: Settings) -> None:
    """Refuse settings of a model that would fail at every turn."""
    if settings.models or {settings.model, *settings.model_fallbacks} - {"rules"}:
        from anchorwatch.models import registry

        registry.check(settings)


def _follow(launcher: Launcher, data: DataDir, settings: Settings, wish: Wish) -> int:
    """Print what the supervisor tells, until it ends (or, detached, until it is ready)."""
    for event in launcher.events():
        match event:
            case {"event": "ready"}:
                failed = _ready(launcher, data, settings, wish)
                if wish.detach:
                    return failed
            case {"event": "note", "text": text}:
                print(text, flush=True)
            case {"event": "failed", "message": message, "hint": hint}:
                launcher.wait()
                sys.stderr.write(f"anchorwatch: {message}{f' ({hint})' if hint else ''}\n")
            case _:
                # From a newer supervisor: nothing that this one must act on.
                pass
    code = launcher.wait()
    if code < 0 and not launcher.stopping:
        raise AnchorWatchError(
            "the supervisor was killed, and the mesh with it",
            hint="`anchorwatch up` continues",
        )
    if code == 0:
        print("stopped; `anchorwatch up` continues", flush=True)
    return max(code, 0)


def _ready(launcher: Launcher, data: DataDir, settings: Settings, wish: Wish) -> int:
    """Complete the first start and print the greeting. Returns the exit code of a failed set-up, else 0."""
    mesh = read_mesh(data)
    if mesh is None:
        # It was stopped in between.
        return 0
    failed = 0
    begun: list[Starter] = []
    if not wish.bare:
        from anchorwatch.cli.first_start import set_up

        try:
            begun = registry.starters()
            if not wish.only or "gateway" in wish.only:
                set_up(begun, mesh, data)
        except AnchorWatchError as error:
            if not launcher.stopping:
                sys.stderr.write(f"anchorwatch: cannot create a pack's first agent: {error}\n")
                failed = error.exit_code
    print(greeting(mesh, data, settings, begun, detach=wish.detach), flush=True)
    return failed


def greeting(
    mesh: MeshFile, data: DataDir, settings: Settings, starters: Sequence[Starter], *, detach: bool
) -> str:
    """The text printed when the mesh is ready: addresses, model, and what to try."""
    command = "anchorwatch"
    if Path(sys.argv[0]).name == command and not _on_path(command):
        command = shlex.quote(os.path.relpath(sys.argv[0]))
    is_default = data.root == DataDir.at(Path(".anchorwatch")).root
    where = "" if is_default else f" --data-dir {shlex.quote(str(data.root))}"
    if settings.model == "rules":
        model = (
            "no LLM is configured: the rules of the pack decide\n"
            "           (ANCHORWATCH_MODEL=openai, ANCHORWATCH_MODEL_NAME, ANCHORWATCH_MODEL_URL, ANCHORWATCH_MODEL_KEY)"
        )
    else:
        model = (
            f"{settings.model_name or 'an LLM'} at {settings.model_url}\n           {_fallbacks(settings)}"
        )
    stop = f"{command} down{where}" + ("" if detach else "          (or Ctrl-C)")
    tries = [line for starter in starters for line in starter.try_first] or NO_STARTER
    first = "\n  ".join(f"{purpose:<10} {command} {words}{where}" for purpose, words in tries)
    return f"""\
Anchor Watch is ready.
  api      {mesh.api_url}
  nats     {mesh.nats_url}
  logs     {data.logs}
  access   {data.mesh} (tokens and passwords, for programs)
  model    {model}
  notices  {_notices(settings, data)}
{"" if registry.names() else NO_PACK}Try:
  {first}
  stop       {stop}"""


def _fallbacks(settings: Settings) -> str:
    """Who decides while the model does not answer."""
    names = ["the rules of the pack" if each == "rules" else each for each in settings.model_fallbacks]
    if not names:
        return "if it does not answer, no turn is decided (ANCHORWATCH_MODEL_FALLBACKS=rules changes that)"
    return f"if it does not answer: {', then '.join(names)} decide"


def _notices(settings: Settings, data: DataDir) -> str:
    """Where notifications go."""
    file = settings.notify
    log = f"to the log {data.log('notifier-1')} only"
    if file is None:
        return f"{log}: set ANCHORWATCH_NOTIFY to a file with a channel (docs/notifications.md)"
    try:
        channels = tomllib.loads(file.read_text(encoding="utf-8")).get("channel", [])
        kinds = {str(each.get("kind")) for each in channels}
    except (OSError, ValueError, AttributeError):
        # The notifier says what is wrong with the file.
        return f"to the channels in {file}"
    if kinds <= {"log"}:
        return f"{log}: add a channel of another kind to {file} (docs/notifications.md)"
    return f"to the channels in {file}"


def _on_path(command: str) -> bool:
    from shutil import which

    found = which(command)
    return found is not None and Path(found).resolve() == Path(sys.argv[0]).resolve()
