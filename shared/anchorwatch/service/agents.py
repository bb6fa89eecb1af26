"""The bucket ``agents``: agent definitions, their versions, and the agent of each session.

``agent.<workspace>.<name>`` holds ``{"version": n}``, the current version. ``agent.<workspace>.<name>.<n>`` holds that
version and is written once. ``session.<workspace>.<session>`` holds ``{"agent": name}``.

A version never changes, so a command that names ``name@version`` keeps the definition under which it was decided. The cached
view may be a moment old: `AgentDirectory.refresh` reads every write that precedes the call.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from anchorwatch.bus.port import Bus, KeyExists, KeyValue, Stored
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.errors import BadInput, Damaged, Fenced, NotFound, Unavailable
from anchorwatch.core.names import SessionRef, check_name
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.register import Register
from anchorwatch.packs import registry
from anchorwatch.packs.port import Pack
from anchorwatch.topology.streams import AGENTS_BUCKET, bucket_stream
from anchorwatch.topology.subjects import KEY_ALL, matches

STALE_ATTEMPTS_MAX = 20
_DELETED = frozenset({"DEL", "PURGE"})


@dataclass(slots=True)
class _WorkspaceView:
    """The cached entries of one workspace: the current version of each agent, and the agent of each session."""

    versions: dict[str, int] = field(default_factory=dict)
    bindings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Current:
    """The current definition of an agent, and the revision of its pointer key; version 0 if there is none."""

    spec: AgentSpec | None = None
    version: int = 0
    revision: int = 0


class AgentDirectory:
    """Reads and writes agent definitions. ``load`` returns a pack by its name."""

    def __init__(self, bus: Bus, bucket: KeyValue, load: Callable[[str], Pack] = registry.load) -> None:
        self._bus = bus
        self._bucket = bucket
        self._load = load
        self._versions: dict[tuple[str, str, int], AgentSpec] = {}
        self._views: dict[str, _WorkspaceView] = {}
        self._subscribers: dict[str, tuple[int, list[tuple[AgentSpec, list[str]]]]] = {}
        self._revision = 0
        self._fresh_at = -math.inf

    @classmethod
    async def open(cls, bus: Bus, load: Callable[[str], Pack] = registry.load) -> AgentDirectory:
        """The directory of this bus.

        Raises:
            Unavailable.
        """
        return cls(bus, await bus.bucket(AGENTS_BUCKET), load)

    # --- reading

    async def get(self, workspace: str, reference: str, *, age_max_s: float = 0.0) -> AgentSpec:
        """The definition of ``name@version``, or the current one of ``name``.

        A frequent caller may accept a current version that was read up to ``age_max_s`` ago. A missing agent is always looked up.

        Raises:
            NotFound. Unavailable. Damaged: the stored entry is not a definition.
        """
        name, _, version = reference.partition("@")
        check_name(name, "agent name")
        if version:
            if not version.isdecimal():
                raise BadInput(f"{reference[:80]!r} has no valid version", hint="write it as NAME@NUMBER")
            return await self._version(workspace, name, int(version))
        current = self._view(workspace).versions.get(name)
        if current is None or asyncio.get_running_loop().time() - self._fresh_at > age_max_s:
            await self.refresh()
            current = self._view(workspace).versions.get(name)
        if current is None:
            raise NotFound(f"unknown agent {name!r}", hint="`anchorwatch agents list` lists all agents")
        return await self._existing_version(workspace, name, current)

    async def all(self, workspace: str) -> list[AgentSpec]:
        """The current version of every agent, ordered by name."""
        await self.refresh()
        current = sorted(self._view(workspace).versions.items())
        return [await self._version(workspace, name, version) for name, version in current]

    async def bindings(self, workspace: str) -> Mapping[str, str]:
        """The name of the agent of each session in the workspace."""
        await self.refresh()
        return dict(self._view(workspace).bindings)

    async def subscribers(self, workspace: str) -> list[tuple[AgentSpec, list[str]]]:
        """The current version of every agent that has sessions, with those sessions.

        Sessions whose agent has no readable definition are omitted. The same list object is returned until an entry changes.
        """
        await self.refresh()
        revision = self._revision
        cached = self._subscribers.get(workspace)
        if cached is not None and cached[0] == revision:
            return cached[1]
        view = self._view(workspace)
        sessions: dict[str, list[str]] = {}
        for session, agent in sorted(view.bindings.items()):
            sessions.setdefault(agent, []).append(session)
        result, complete = [], True
        for agent, names in sessions.items():
            version = view.versions.get(agent)
            if version is not None:
                try:
                    result.append((await self._version(workspace, agent, version), names))
                except (NotFound, Damaged):
                    # The server that answered may not have the version yet.
                    complete = False
        if complete:
            self._subscribers[workspace] = revision, result
        return result

    async def workspaces(self) -> list[str]:
        """The workspaces that have an agent or a session."""
        await self.refresh()
        return sorted(self._views)

    def knows(self, workspace: str) -> bool:
        """Whether the workspace has, or had, an agent or a session, as of the last refresh."""
        return workspace in self._views

    async def refresh(self) -> None:
        """Read every write that precedes this call.

        It costs one small request if nothing has changed.

        Raises:
            Unavailable: no server answered up to that revision.
        """
        requested_at = asyncio.get_running_loop().time()
        target = await self._bucket.revision()
        attempts = 0
        while self._revision < target:
            page = await self._bus.range(
                bucket_stream(AGENTS_BUCKET), KEY_ALL.at(bucket=AGENTS_BUCKET), self._revision + 1
            )
            for stored in page.messages:
                # A concurrent refresh may have applied this message already.
                if stored.sequence > self._revision:
                    self._apply(stored)
                    self._revision = stored.sequence
            if not page.more:
                if page.up_to >= target:
                    self._revision = max(self._revision, target)
                    break
                attempts += 1
                if attempts > STALE_ATTEMPTS_MAX:
                    raise Unavailable("no server answered up to the last revision of the agents")
        self._fresh_at = max(self._fresh_at, requested_at)

    # --- writing

    async def apply(self, workspace: str, spec: AgentSpec) -> AgentSpec:
        """Make ``spec`` the current definition of its agent; an identical definition keeps its version.

        Raises:
            BadInput: the pack, the model, a grant, a subscription or the configuration for the pack is invalid. Unavailable.
        """
        check_name(workspace, "workspace name")
        self.check(spec)
        pointer_key = f"agent.{workspace}.{spec.name}"

        async def load() -> _Current:
            pointer = await self._bucket.get(pointer_key)
            if pointer is None:
                return _Current()
            version = _version_of(pointer.value)
            return _Current(
                await self._existing_version(workspace, spec.name, version), version, pointer.revision
            )

        def decide(current: _Current) -> AgentSpec | None:
            if current.spec == spec.model_copy(update={"version": current.version}):
                return None
            return spec.model_copy(update={"version": current.version + 1})

        async def write(current: _Current, wanted: AgentSpec) -> _Current:
            new = wanted
            try:
                reached(Edge.GATEWAY_AGENT_BEFORE)
                await self._bucket.create(f"{pointer_key}.{new.version}", new.model_dump_json().encode())
            except KeyExists:
                # Another process wrote this version and may have died before it became current: make it current first.
                new = await self._existing_version(workspace, spec.name, wanted.version)
            value = json.dumps({"version": new.version}).encode()
            try:
                reached(Edge.GATEWAY_AGENT_POINTER_BEFORE)
                if current.spec is None:
                    revision = await self._bucket.create(pointer_key, value)
                else:
                    revision = await self._bucket.update(pointer_key, value, current.revision)
                reached(Edge.GATEWAY_AGENT_AFTER)
            except KeyExists:
                raise Fenced(f"agent {spec.name!r} was changed by another process") from None
            if new != wanted:
                raise Fenced(f"agent {spec.name!r} was changed by another process")
            return _Current(new, new.version, revision)

        after = await Register(f"agent {spec.name!r}", load, write).change(decide)
        assert after.spec is not None  # noqa: S101 - `decide` leaves a definition
        return after.spec

    async def bind(self, ref: SessionRef, agent: str) -> None:
        """Assign the session to the agent of this name: it receives the events to which the agent subscribes."""
        value = json.dumps({"agent": check_name(agent, "agent name")}).encode()
        await self._bucket.put(_session_key(ref), value)

    async def unbind(self, ref: SessionRef) -> None:
        """Remove the session's agent: it receives no more events."""
        await self._bucket.delete(_session_key(ref))

    def check(self, spec: AgentSpec) -> None:
        """Check that a definition is valid.

        Raises:
            BadInput: it names the invalid part and the valid choices.
        """
        try:
            pack = self._load(spec.pack)
        except NotFound as error:
            raise BadInput(error.message, hint=error.hint) from None
        tools = {tool.name for tool in pack.tools(spec)}
        unknown = sorted(set(spec.grants) - tools)
        if unknown:
            raise BadInput(
                f"pack {spec.pack!r} has no tool {', '.join(map(repr, unknown))}",
                hint=f"it has {', '.join(sorted(tools))}",
            )
        for subscription in spec.subscriptions:
            _check_subscription(subscription)
        pack.check(spec)

    # --- the cached view

    def _view(self, workspace: str) -> _WorkspaceView:
        return self._views.get(workspace) or _WorkspaceView()

    def _apply(self, stored: Stored) -> None:
        value = None if stored.headers.get("KV-Operation") in _DELETED else stored.payload
        try:
            self._enter(stored.subject.split(".", 2)[2], value)
        except Damaged:
            # An unreadable entry counts as missing; it hides no other entry.
            self._enter(stored.subject.split(".", 2)[2], None)

    def _enter(self, key: str, value: bytes | None) -> None:
        match key.split("."):
            case ["agent", workspace, name]:
                view = self._views.setdefault(workspace, _WorkspaceView())
                if value is None:
                    view.versions.pop(name, None)
                else:
                    view.versions[name] = _version_of(value)
            case ["session", workspace, session]:
                view = self._views.setdefault(workspace, _WorkspaceView())
                if value is None:
                    view.bindings.pop(session, None)
                else:
                    view.bindings[session] = str(_object(value).get("agent", ""))
            case _:
                # A version, which is read on demand, or a key of a newer release.
                pass

    async def _existing_version(self, workspace: str, name: str, version: int) -> AgentSpec:
        """A version that is known to exist.

        Raises:
            Unavailable: the server that answered does not have it yet. Damaged.
        """
        try:
            return await self._version(workspace, name, version)
        except NotFound:
            raise Unavailable(f"agent {name}@{version} is not available yet", hint="try again") from None

    async def _version(self, workspace: str, name: str, version: int) -> AgentSpec:
        cached = self._versions.get((workspace, name, version))
        if cached is not None:
            return cached
        entry = await self._bucket.get(f"agent.{workspace}.{name}.{version}")
        if entry is None:
            raise NotFound(
                f"unknown agent {name}@{version}",
                hint=f"`anchorwatch agents show {name}` shows its current version",
            )
        try:
            spec = AgentSpec.stored(json.loads(entry.value))
        except ValueError as error:
            raise Damaged(f"the stored definition of agent {name}@{version} is invalid: {error}") from None
        self._versions[workspace, name, version] = spec
        return spec


def _session_key(ref: SessionRef) -> str:
    return f"session.{check_name(ref.workspace, 'workspace name')}.{check_name(ref.session, 'session name')}"


def _object(value: bytes) -> dict[str, object]:
    try:
        content = json.loads(value)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise Damaged("an entry of the bucket `agents` is not a JSON object")
    return content


def _version_of(value: bytes) -> int:
    version = _object(value).get("version")
    if not isinstance(version, int) or version < 1:
        raise Damaged("an entry of the bucket `agents` has no valid version")
    return version


def _check_subscription(filter_: str) -> None:
    tokens = filter_.split(".")
    nonempty = all(token and not any(c.isspace() for c in token) for token in tokens)
    wildcards = (
        all(token in ("*", ">") for token in tokens if "*" in token or ">" in token)
        and ">" not in tokens[:-1]
    )
    if not (nonempty and wildcards):
        raise BadInput(
            f"{filter_[:80]!r} is not an event filter",
            hint="separate tokens by dots; `*` matches one token, a final `>` matches the rest; for example fleet.>",
        )


def is_subscribed(spec: AgentSpec, event: str) -> bool:
    """Whether the agent subscribes to the event ``<source>.<type…>``."""
    return any(matches(filter_, event) for filter_ in spec.subscriptions)
