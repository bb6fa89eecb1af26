"""Builds the model of an agent: the agent's choice first, then the settings."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.util import find_spec
from typing import Protocol
from urllib.parse import urlsplit

from anchorwatch.core.agents import DEFAULT, OPENAI, RULES, AgentSpec
from anchorwatch.core.errors import BadSettings, NotInstalled
from anchorwatch.models import catalog
from anchorwatch.models.endpoint import Endpoint, Patience
from anchorwatch.models.port import Model, Situation, StepDecision
from anchorwatch.models.profile import Profile
from anchorwatch.models.profile import find as find_profile
from anchorwatch.models.rules import RulesModel
from anchorwatch.models.tokens import counter_for
from anchorwatch.settings import Settings

_KEY = re.compile(r"[\x21-\x7e]+")
PACKAGES = ("openai", "tiktoken")
"""Packages of the extra `models`."""
# These refuse `max_tokens` for their newer models; every other endpoint knows it, and not always the newer name.
_NEW_LIMIT_HOSTS = ("openai.com", "azure.com")


class HasRules(Protocol):
    """The part of a pack that is needed here."""

    def rules(self, situation: Situation) -> StepDecision: ...


def build(settings: Settings, agent: AgentSpec, pack: HasRules) -> Model:
    """The model that decides for this agent. The caller closes it.

    Raises:
        BadSettings: names the missing setting and the fix.
    """
    chosen = settings.model if agent.model == DEFAULT else agent.model
    if chosen == RULES:
        return RulesModel(pack.rules)
    return _openai(catalog.effective(settings, chosen))


def check(settings: Settings) -> None:
    """Check that the models of the settings can be built, without any request or SDK import.

    Raises:
        BadSettings: names the missing setting and the fix.
    """
    if settings.model == OPENAI:
        _checked(settings)
    for name in catalog.names(settings):
        _checked(catalog.effective(settings, name))
    for name in settings.model_fallbacks:
        if name != RULES:
            _checked(catalog.effective(settings, name))


def _checked(settings: Settings) -> tuple[str, str, str, str, Profile]:
    """Name, URL, the URL's host, key, and the endpoint's profile."""
    check_installed()
    name = settings.model_name.strip()
    if not name:
        raise BadSettings(
            "the model `openai` requires a model name",
            hint="set ANCHORWATCH_MODEL_NAME, for example gpt-4.1-mini, or ANCHORWATCH_MODEL=rules, which needs no LLM",
        )
    url = settings.model_url.strip().rstrip("/")
    host = _host(url)
    key = settings.model_key.get_secret_value().strip() if settings.model_key is not None else ""
    if key and not _KEY.fullmatch(key):
        raise BadSettings(
            "the model's key contains a character that HTTP headers do not allow",
            hint="set ANCHORWATCH_MODEL_KEY to the key alone, without quotes, spaces or line breaks",
        )
    return name, url, host, key, _profile(settings)


def check_installed() -> None:
    """Check for the packages of the extra `models`, without importing them.

    Raises:
        NotInstalled.
    """
    for package in PACKAGES:
        if find_spec(package) is None:
            raise NotInstalled(f"the package {package}, which language models need,", "models")


def _profile(settings: Settings) -> Profile:
    profile = find_profile(settings.model_profile)
    most = profile.context_tokens - settings.completion_tokens_max
    if profile.context_tokens and settings.context_tokens_max > most:
        raise BadSettings(
            f"requests of {settings.context_tokens_max} tokens and answers of {settings.completion_tokens_max} exceed the "
            f"{profile.context_tokens} of the endpoint's profile {profile.name}",
            hint=f"ANCHORWATCH_CONTEXT_TOKENS_MAX={max(most, 0)}, or a lower ANCHORWATCH_COMPLETION_TOKENS_MAX",
        )
    return profile


def _openai(settings: Settings) -> Model:
    name, url, host, key, profile = _checked(settings)
    from anchorwatch.models.meter import Meter, MeteredModel, Place  # noqa: PLC0415 - see below
    from anchorwatch.models.openai import OpenAIModel  # noqa: PLC0415 - the SDK takes 0.5 s to import

    newer = host.endswith(_NEW_LIMIT_HOSTS)
    auto = "max_completion_tokens" if newer else "max_tokens"
    endpoint = Endpoint(
        url,
        name,
        key,
        completion_tokens_max=settings.completion_tokens_max,
        limit_field=auto if profile.limit_field == "auto" else profile.limit_field,
        profile=profile,
        patience=Patience(
            connect_s=settings.model_connect_s,
            first_token_s=settings.model_first_token_s,
            between_tokens_s=settings.model_between_tokens_s,
            total_s=settings.model_timeout_s,
        ),
    )
    counter = counter_for(name)
    if profile.counter == "estimate":
        return OpenAIModel(endpoint, counter)
    # Its own counter decides, so no safety ratio is needed.
    model = OpenAIModel(endpoint, replace(counter, ratio=1.0))
    return MeteredModel(model, Meter(Place(profile.counter, url, name, key, profile)))


def _host(url: str) -> str:
    """The host of the endpoint's URL, checked: errors and logs show it, so it must not contain a secret."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in {"http", "https"} or not host:
        raise BadSettings(
            "the model's URL is not a valid http or https URL",
            hint="set ANCHORWATCH_MODEL_URL, for example http://127.0.0.1:8000/v1",
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise BadSettings(
            "the model's URL contains a user, a password, a query or a fragment",
            hint="set ANCHORWATCH_MODEL_URL to the plain base URL, and ANCHORWATCH_MODEL_KEY to the key",
        )
    return host
