"""The decorator that makes a function a verb: it adds the common options and passes the function a `Cli`."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

import typer
from typer.core import TyperGroup

from anchorwatch.cli.render import Output, one_line
from anchorwatch.core.errors import BadInput, Refused
from anchorwatch.core.names import check_name

if TYPE_CHECKING:
    from anchorwatch.bus.port import Bus
    from anchorwatch.cli.api import Api
    from anchorwatch.mesh.files import DataDir

T = TypeVar("T")
PROGRAM = "anchorwatch"
CONNECT_S_MAX = 5.0
HELP_OPTIONS = ("-h", "--help")

COMMON: dict[str, Any] = {
    "as_json": Annotated[bool, typer.Option("--json", help="Print JSON.")],
    "data_dir": Annotated[
        Path | None,
        typer.Option(
            "--data-dir", help="Data directory of the mesh.", metavar="DIR", show_default=".anchorwatch"
        ),
    ],
    "url": Annotated[
        str | None,
        typer.Option("--url", help="HTTP API of a mesh elsewhere, instead of --data-dir.", metavar="URL"),
    ],
    "token": Annotated[
        str | None,
        typer.Option("--token", help="Bearer token for --url (or ANCHORWATCH_TOKEN).", metavar="TOKEN"),
    ],
    "workspace": Annotated[
        str | None,
        typer.Option("--workspace", help="Workspace.", metavar="NAME", show_default="default"),
    ],
}
_PREFIX = "common_"
"""Of the parameters' names: a verb may have a ``url`` of its own."""

Limit = Annotated[
    int, typer.Option("--limit", help="Show at most N entries.", metavar="N", min=1, max=100_000)
]
Session = Annotated[str, typer.Argument(metavar="SESSION", help="Name of the session.", show_default=False)]
OfSession = Annotated[str | None, typer.Option("--session", metavar="SESSION", help="Only this session.")]
OfTurn = Annotated[
    str | None, typer.Option("--turn", metavar="TURN", help="Only this turn: its id or run number.")
]
OfState = Annotated[str | None, typer.Option("--state", metavar="STATE", help="Only this state.")]
Text = Annotated[
    str, typer.Argument(metavar="TEXT", help="The text; - reads standard input.", show_default=False)
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason, recorded in the journal.")]
Note = Annotated[str, typer.Option("--note", metavar="TEXT", help="Note, recorded in the journal.")]
Key = Annotated[
    str | None,
    typer.Option(
        "--key", metavar="KEY", help="Idempotency key: repeating the request has no further effect."
    ),
]
Utc = Annotated[bool, typer.Option("--utc", help="Print times in UTC.")]
Iso = Annotated[bool, typer.Option("--iso", help="Print times as ISO 8601, with the offset.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the effect, and change nothing.")]


@dataclass(frozen=True, slots=True)
class Uses:
    """What a verb works on: which common options it takes, and why it takes no others."""

    takes: frozenset[str]
    why: str = ""
    hint: str = ""


API = Uses(frozenset(COMMON))
BUS = Uses(
    frozenset({"as_json", "data_dir"}),
    "it connects to NATS, not to the HTTP API",
    "use --data-dir DIR; for a mesh elsewhere set ANCHORWATCH_NATS_URL, _NATS_USER and _NATS_PASSWORD",
)
HOST = Uses(
    frozenset({"as_json", "data_dir"}),
    "it manages a mesh on this machine",
    "run it where the mesh runs, with --data-dir DIR",
)
NOTHING = Uses(frozenset({"as_json"}), "it uses no running mesh", "leave it out")


class Cli(Output):
    """What every verb is given: the mesh that the common options select, and the output."""

    def __init__(
        self,
        *,
        as_json: bool = False,
        data_dir: Path | None = None,
        url: str | None = None,
        token: str | None = None,
        workspace: str | None = None,
    ) -> None:
        super().__init__(as_json=as_json)
        self.data_dir = data_dir
        self._target = (data_dir, url, token, workspace)
        self._api: Api | None = None

    @property
    def api(self) -> Api:
        """The client of the mesh, connected at the first use.

        Raises:
            BadInput: the options select no mesh, or two.
            Unavailable: no mesh runs on the data directory.
        """
        # Imported here, as in all verbs: `version` and `--help` need no HTTP client.
        from anchorwatch.cli.target import open_api

        if self._api is None:
            self._api = open_api(*self._target)
        return self._api

    @property
    def data(self) -> DataDir:
        """The data directory: from ``--data-dir``, else from the settings."""
        from anchorwatch.cli.running import data_directory

        return data_directory(self.data_dir)

    def with_bus(self, use: Callable[[Bus], Awaitable[T]]) -> T:
        """The result of ``use`` on a connected bus, as the user ``cli``.

        Raises:
            Unavailable: no mesh runs there, or its NATS server does not answer.
        """
        import asyncio

        from anchorwatch.cli.target import bus_settings
        from anchorwatch.service.connect import connect

        settings = bus_settings(self.data_dir)

        async def run() -> T:
            bus = await connect(settings, "anchorwatch-cli", timeout_s=CONNECT_S_MAX)
            try:
                return await use(bus)
            finally:
                await bus.close()

        return asyncio.run(run())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._api is not None:
            self._api.__exit__(kind, error, where)


def _print_version(value: bool) -> None:  # noqa: FBT001 - typer calls it with one argument
    if value:
        from importlib.metadata import version

        print(f"{PROGRAM} {version(PROGRAM)}")
        raise typer.Exit


def _app() -> typer.Typer:
    app = typer.Typer(
        name=PROGRAM,
        help="Anchor Watch: autonomous agents on real systems, made safe to leave alone.",
        context_settings={"max_content_width": 110, "help_option_names": list(HELP_OPTIONS)},
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    common = _parameters()

    def root(
        context: typer.Context,
        *,
        version: Annotated[  # noqa: ARG001 - its callback ends the program
            bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
        ] = False,
        **values: Any,  # noqa: ANN401 - what the options are
    ) -> None:
        context.obj = {name: value for name, value in values.items() if value}

    own = list(inspect.signature(root, eval_str=True).parameters.values())[:-1]
    _declare(root, [*own, *common])
    app.callback()(root)
    return app


def verb(
    app: typer.Typer,
    name: str | None = None,
    uses: Uses = API,
    *,
    json: bool = True,
    without: str = "",
    text: str | None = None,
    negative: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a function to ``app`` as a verb. Its first parameter is a `Cli`; the others are its own arguments and options.

    ``name``: by default the function's. ``json``: whether it takes ``--json``. ``without``: a common option whose name the
    verb uses for an option of its own. ``text``: its help, by default the function's docstring. A common option may also come
    before the verb: ``anchorwatch --json sessions list``. ``negative``: an argument may begin with ``-``, as a number does.
    """
    takes = uses.takes if json else uses.takes - {"as_json"}

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        common = _parameters(hidden=COMMON.keys() - takes, without=without)

        @functools.wraps(function)
        def run(context: typer.Context, **values: Any) -> Any:  # noqa: ANN401 - what the options are
            given = {
                **(context.obj or {}),
                **{each.name: value for each in common if (value := values.pop(each.name))},
            }
            chosen = {name.removeprefix(_PREFIX): value for name, value in given.items()}
            for each in sorted(chosen.keys() - takes):
                path = context.command_path.removeprefix(PROGRAM).strip()
                flag = COMMON[each].__metadata__[0].default
                why = "it prints no JSON" if each == "as_json" else uses.why
                hint = "leave it out" if each == "as_json" else uses.hint
                raise BadInput(f"`{path}` takes no {flag}: {why}", hint=hint)
            with Cli(**chosen) as cli:
                return function(cli, **values)

        context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
        _declare(run, [context, *own, *common])
        app.command(name, help=text, context_settings={"ignore_unknown_options": negative})(run)
        return function

    return register


class Noun(TyperGroup):
    """A group whose verb may be left out: then it is ``list`` or, before a word that is not a verb, ``word``."""

    word = ""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's own type
        first = args[0] if args else ""
        # While the shell completes the verb itself, there is none yet.
        completing = ctx.resilient_parsing and not first
        if not completing and first not in self.commands and first not in HELP_OPTIONS:
            chosen = self.word if first and not first.startswith("-") else "list"
            args = [chosen, *args] if chosen in self.commands else args
        return list(super().parse_args(ctx, args))


def noun(app: typer.Typer, name: str, text: str, *, word: str = "") -> typer.Typer:
    """Add a group of verbs on one kind of thing. ``text``: its help. ``word``: see `Noun`."""
    group = typer.Typer(cls=type(name, (Noun,), {"word": word}), rich_markup_mode=None, help=text)
    app.add_typer(group, name=name)
    return group


def session_path(session: str, *more: str) -> str:
    """The path of a session in the API, or of a part of it. The name is checked here, as it becomes part of an address.

    Raises:
        BadInput: it is not a valid name.
    """
    return "/".join(("/api/sessions", check_name(session, "session name"), *more))


def read_text(text: str) -> str:
    """The text of an argument; of standard input for ``-``.

    Raises:
        BadInput: it is empty.
    """
    given = typer.get_text_stream("stdin").read() if text == "-" else text
    if not given.strip():
        raise BadInput("the text is empty", hint="give a text, or - and standard input")
    return given


def confirm(question: str) -> None:
    """Continue only after a yes.

    Raises:
        Refused: the answer was no, or there was none.
    """
    try:
        answer = typer.confirm(one_line(question), err=True)
    except typer.Abort as end:
        if isinstance(end.__context__, KeyboardInterrupt):
            raise
        raise Refused("nothing was done: no answer", hint="--yes skips the question") from None
    if not answer:
        raise Refused("nothing was done")


def _parameters(*, hidden: AbstractSet[str] = frozenset(), without: str = "") -> list[Parameter]:
    """The common options as parameters; those of ``hidden`` are parsed, to be refused with a reason, and not shown."""
    parameters = []
    for name, annotation in COMMON.items():
        if name != without:
            kind, option = annotation.__origin__, copy.copy(annotation.__metadata__[0])
            option.hidden = name in hidden
            default = False if kind is bool else None
            parameters.append(
                Parameter(
                    _PREFIX + name,
                    Parameter.KEYWORD_ONLY,
                    default=default,
                    annotation=Annotated[kind, option],
                )
            )
    return parameters


def _declare(function: Callable[..., Any], parameters: list[Parameter]) -> None:
    """Make typer see these parameters."""
    parameters = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {each.name: each.annotation for each in parameters}


APP = _app()
