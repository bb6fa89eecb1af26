"""All settings with types and defaults: from the environment (``ANCHORWATCH_…``), else ``anchorwatch.toml``.

A secret may also be in a file of its own that ``ANCHORWATCH_…_FILE`` names, as containers do.
"""

from __future__ import annotations

import os
import re
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from anchorwatch.core.agents import CONTEXT_TOKENS_MAX, HEARTBEAT_S_MAX, WAITING_MAX
from anchorwatch.core.errors import BadSettings
from anchorwatch.core.faults import problem_of
from anchorwatch.core.names import NAME_FORM, NAME_PATTERN

PREFIX = "ANCHORWATCH_"
FILE = "anchorwatch.toml"
SECRET_FILE_SUFFIX = "_FILE"
DAY_S = 86_400
PRICE_MAX = 1_000_000_000
# nats-py needs another library for websockets.
_NATS_SCHEMES = ("nats", "tls")
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?")


def _name(value: str) -> str:
    if not re.fullmatch(NAME_PATTERN, value):
        raise ValueError(f"{value[:80]!r} is not a valid name: {NAME_FORM}")
    return value


def _nats_urls(value: str) -> str:
    """Check NATS addresses: a client would wait forever for a server at an invalid address.

    The error does not repeat the value, which may contain a password.
    """
    parts = value.split(",")
    for number, part in enumerate(parts, 1):
        if not _is_nats_url(part.strip()):
            which = "it" if len(parts) == 1 else f"part {number} of {len(parts)}"
            raise ValueError(
                f"{which} is not a NATS server address; write nats://HOST:PORT or tls://HOST:PORT"
            )
    return value


def _is_nats_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        return False
    host = url.hostname or ""
    rest = url.path.rstrip("/") or url.query or url.fragment
    return url.scheme in _NATS_SCHEMES and _HOST.fullmatch(host) is not None and port != 0 and not rest


class Settings(BaseSettings):
    """All settings of the mesh. Durations are seconds, sizes bytes."""

    # An empty variable counts as not set: compose files pass empty values.
    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        toml_file=FILE,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
    )

    data_dir: Path = Field(
        Path(".anchorwatch"), description="where the mesh keeps its data, logs and credentials"
    )
    url: str | None = Field(None, description="HTTP API of a remote mesh, instead of a data directory")
    token: SecretStr | None = Field(None, description="bearer token of the HTTP API")

    nats_url: Annotated[str, AfterValidator(_nats_urls)] = Field(
        "nats://127.0.0.1:4222",
        description="the NATS server that a service connects to (`nats://` or `tls://`); several with commas",
    )
    nats_user: str | None = Field(None, description="NATS user")
    nats_password: SecretStr | None = Field(None, description="NATS password")
    nats_client: Literal["fast", "plain"] = Field(
        "fast", description="`plain` uses nats-py without the fast path that needs one minor version of it"
    )
    nats_replicas: int = Field(1, ge=1, le=5, description="copies of each stream; 3 in a cluster")
    instance: str | None = Field(
        None, description="stable name of a service instance, such as `executor-1`; a restart keeps it"
    )
    workspace: Annotated[str, AfterValidator(_name)] = Field(
        "default", description="the workspace of the command line"
    )

    model: Literal["rules", "openai"] = Field(
        "rules", description="`rules`: the pack's own decisions, no LLM; `openai`"
    )
    model_url: str = Field(
        "https://api.openai.com/v1", description="base URL of an OpenAI-compatible endpoint"
    )
    model_name: str = Field("", description="the model's name at the endpoint")
    model_key: SecretStr | None = Field(None, description="API key of the endpoint; local servers need none")
    model_profile: str = Field(
        "openai",
        description="how the endpoint behaves: `openai`, `json-schema` (for small models), or a TOML file (docs/models.md)",
    )
    model_timeout_s: float = Field(
        120.0, gt=0, le=DAY_S, description="longest duration of a model call, retries included"
    )
    model_connect_s: float = Field(
        10.0, gt=0, le=DAY_S, description="longest duration of connecting to the endpoint"
    )
    model_first_token_s: float = Field(
        60.0, gt=0, le=DAY_S, description="longest wait for a streamed answer's first token"
    )
    model_between_tokens_s: float = Field(
        30.0, gt=0, le=DAY_S, description="longest pause between two tokens of a streamed answer"
    )
    context_tokens_max: int = Field(
        30_000, ge=256, le=CONTEXT_TOKENS_MAX, description="largest request to a model, in tokens"
    )
    models: Path | None = Field(
        None, description="a TOML file of further models, by the names that agents use"
    )
    model_fallbacks: Annotated[tuple[str, ...], NoDecode] = Field(
        ("rules",),
        description="models to call, in this order, when the configured one does not answer; separated by commas; `none`: none",
    )
    price_prompt: float = Field(
        0.0,
        ge=0,
        le=PRICE_MAX,
        description="price of a million prompt tokens, in the currency of the budgets; 0: unknown",
    )
    price_completion: float = Field(
        0.0, ge=0, le=PRICE_MAX, description="price of a million completion tokens"
    )
    completion_tokens_max: int = Field(
        4_096, ge=16, le=CONTEXT_TOKENS_MAX, description="largest answer requested of a model, in tokens"
    )

    heartbeat_s: float = Field(
        300.0, ge=1, le=HEARTBEAT_S_MAX, description="longest time between two turns of a session"
    )
    debounce_p0_s: float = Field(2.0, ge=0, le=DAY_S, description="debounce window of P0 wake-ups")
    debounce_p1_s: float = Field(10.0, ge=0, le=DAY_S, description="debounce window of P1 wake-ups")
    turns_per_hour: int = Field(
        0, ge=0, le=3600, description="turns that a session starts by itself in an hour; 0: no bound"
    )
    turn_burst: int = Field(4, ge=1, le=1000, description="turns in a row before `turns_per_hour` counts")
    min_interval_s: float = Field(
        0.0, ge=0, le=DAY_S, description="shortest time between the starts of two turns of a session"
    )
    waiting_max: int = Field(
        10_000,
        ge=2,
        le=WAITING_MAX,
        description="inputs that may be pending in a held session; beyond, the oldest events are refused",
    )
    events_bytes_max: int = Field(
        1024**3,
        ge=1024**2,
        le=2**50,
        description="size of the stream of events; beyond it new ones are refused. Not set: at most 1/8 of the store's disk",
    )
    events_age_s: float = Field(
        30.0 * DAY_S, ge=3600, le=3650 * DAY_S, description="how long the stream of events keeps an event"
    )
    event_bytes_max: int = Field(
        256 * 1024, ge=4096, le=256 * 1024, description="largest event, with its headers"
    )
    publisher_connections_max: int = Field(
        256,
        ge=1,
        le=60_000,
        description="connections of publishers to the embedded NATS server at a time",
    )
    probe_interval_s: float = Field(2.0, gt=0, le=DAY_S, description="interval of the observer's probes")
    lease_s: float = Field(
        6.0,
        ge=1,
        le=DAY_S,
        description="a process that has not renewed its presence for this long counts as gone",
    )
    sweep_s: float = Field(
        15.0, gt=0, le=DAY_S, description="interval of the planners' sweep for sessions without a wake-up"
    )

    pools: Annotated[tuple[str, ...], NoDecode] = Field(
        ("default",),
        min_length=1,
        description="the pools whose commands an executor runs; separated by commas",
    )
    executor_concurrency: int = Field(
        16, ge=1, le=256, description="commands of a pool that an executor runs at a time"
    )
    dead_letter_tries: int = Field(
        8, ge=1, le=100, description="failures of a handler on a message before it is shown to people"
    )

    nats_port: int = Field(
        4222, ge=0, le=65535, description="the embedded NATS server's port; 0: any free one"
    )
    port: int = Field(8420, ge=0, le=65535, description="the gateway's port; 0: any free one")
    host: str = Field("127.0.0.1", description="the address that the gateway listens on")
    metrics_open: bool = Field(default=False, description="serve `/metrics` without the token")
    notify: Path | None = Field(None, description="a TOML file of notification channels; none: the log only")
    hooks: Path | None = Field(
        None, description="a TOML file of hooks, which take alerts of other systems (docs/events.md)"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="lowest level of log entries"
    )

    @field_validator("pools", "model_fallbacks", mode="before")
    @classmethod
    def _separate(cls, value: object) -> object:
        """``default,gpu`` in the environment, ``none`` for an empty list (an empty variable means the default); or a list."""
        if not isinstance(value, str):
            return value
        return [] if value.strip() == "none" else [part.strip() for part in value.split(",") if part.strip()]

    @field_validator("pools", "model_fallbacks")
    @classmethod
    def _names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(_name, value))

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the base class names it
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the base class names it
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then the environment, then files that the environment names, then the settings file."""
        return init_settings, env_settings, SecretFiles(settings_cls), TomlConfigSettingsSource(settings_cls)


class SecretFiles(PydanticBaseSettingsSource):
    """Secrets from files: ``ANCHORWATCH_TOKEN_FILE`` names the file that holds ``token``."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002 - the base's form
        variable = f"{PREFIX}{field_name.upper()}{SECRET_FILE_SUFFIX}"
        path = os.environ.get(variable)
        return read_secret(variable, path) if path else None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """The secrets that have a file."""
        values = {name: self.get_field_value(Settings.model_fields[name], name)[0] for name in secret_names()}
        return {name: value for name, value in values.items() if value is not None}


def read_secret(variable: str, path: str) -> str:
    """The secret in a file that a variable names.

    Raises:
        BadSettings: the file cannot be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadSettings(
            f"{variable}: cannot read {path}: {reason}", hint="name a file that holds the secret"
        ) from None


def source_of(name: str) -> str:
    """Where the value of a setting comes from: ``environment``, ``file PATH`` of a secret, `FILE`, or ``default``."""
    variable = f"{PREFIX}{name.upper()}"
    environment = {each.upper() for each, value in os.environ.items() if value}
    if variable in environment:
        return "environment"
    if name in secret_names() and variable + SECRET_FILE_SUFFIX in environment:
        return f"file {os.environ[variable + SECRET_FILE_SUFFIX]}"
    file = Path(FILE)
    if file.exists() and name in tomllib.loads(file.read_text(encoding="utf-8")):
        return FILE
    return "default"


def secret_names() -> list[str]:
    """The settings whose values are never shown."""
    return [name for name, field in Settings.model_fields.items() if "SecretStr" in str(field.annotation)]


def load(**overrides: object) -> Settings:
    """Read the settings.

    Raises:
        BadSettings: names each invalid setting, its origin, and the allowed values.
    """
    try:
        return Settings(**overrides)  # type: ignore[arg-type]  # pydantic checks each of them
    except ValidationError as error:
        parts = []
        for problem in error.errors(include_url=False, include_input=False):
            name = ".".join(str(part) for part in problem["loc"])
            if problem["type"] == "extra_forbidden":
                # Unknown names matter in the file only.
                close = get_close_matches(name.lower(), Settings.model_fields, n=1)
                parts.append(
                    f"{FILE}: unknown setting {name!r}{f'; did you mean {close[0]}?' if close else ''}"
                )
            else:
                parts.append(f"{PREFIX}{name.upper()} {problem_of(problem)}")
        raise BadSettings(
            "; ".join(parts), hint=f"docs/settings.md lists them; set in the environment or {FILE}"
        ) from None
    except (tomllib.TOMLDecodeError, OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"{FILE} cannot be read: {error}", hint="fix or remove it") from None
