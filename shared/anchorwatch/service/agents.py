"""Agent definitions, their versions, and which session belongs to which agent: the bucket ``agents``.

Keys: ``agent.<workspace>.<name>`` holds ``{"version": n}``, the version that counts now; ``agent.<workspace>.<name>.<n>`` holds
that version, written once; ``session.<workspace>.<session>`` holds ``{"agent": name}``.

A version never changes, so a command that names ``name@version`` means for ever what was decided under it. What is
read here may be a moment old: `AgentDirectory.refresh` brings it up to everything that was written before the call.
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
class _Known:
    """What has been read of one workspace: the current version of each agent, and the agent of each session."""

    versions: dict[str, int] = field(default_factory=dict)
    bindings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Current:
    """The current definition of an agent, and the revision of the key that names its version; version 0: none."""

    spec: AgentSpec | None = None
    version: int = 0
    revision: int = 0


class AgentDirectory:
    """Reads and writes the definitions. ``load`` finds a pack by name."""

    def __init__(self, bus: Bus, bucket: KeyValue, load: Callable[[str], Pack] = registry.load) -> None:
        self._bus = bus
        self._bucket = bucket
        self._load = load
        self._versions: dict[tuple[str, str, int], AgentSpec] = {}
        self._known: dict[str, _Known] = {}
        self._subscribers: dict[str, tuple[int, list[tuple[AgentSpec, list[str]]]]] = {}
        self._revision = 0
        self._fresh_at = -math.inf

    @classmethod
    async def open(cls, bus: Bus, load: Callable[[str], Pack] = registry.load) -> AgentDirectory:
        """The directory of this bus.

        Raises:
            Unavailable: the bus is away.
        """
        return cls(bus, await bus.bucket(AGENTS_BUCKET), load)

    # --- reading

    async def get(self, workspace: str, reference: str, *, age_max_s: float = 0.0) -> AgentSpec:
        """The definition that ``name@version`` names for ever, or the one that ``name`` names now.

        ``age_max_s``: for those who ask often, how old the answer to what it names now may be (never: there is none).

        Raises:
            NotFound: there is none. Unavailable. Damaged: what is stored is no definition.
        """
        name, _, version = reference.partition("@")
        check_name(name, "agent name")
        if version:
            if not version.isdecimal():
                raise BadInput(f"{reference[:80]!r} names no version", hint="write it as NAME@NUMBER")
            return await self._version(workspace, name, int(version))
        current = self._of(workspace).versions.get(name)
        if current is None or asyncio.get_running_loop().time() - self._fresh_at > age_max_s:
            await self.refresh()
            current = self._of(workspace).versions.get(name)
        if current is None:
            raise NotFound(f"there is no agent {name!r}", hint="`anchorwatch agents list` lists them")
        return await self._pointed_at(workspace, name, current)

    async def all(self, workspace: str) -> list[AgentSpec]:
        """The current version of every agent, by name."""
        await self.refresh()
        current = sorted(self._of(workspace).versions.items())
        return [await self._version(workspace, name, version) for name, version in current]

    async def bindings(self, workspace: str) -> Mapping[str, str]:
        """The agent's name for every session of the workspace, as of now."""
        await self.refresh()
        return dict(self._of(workspace).bindings)

    async def subscribers(self, workspace: str) -> list[tuple[AgentSpec, list[str]]]:
        """Every agent that has sessions, in its current version, with its sessions, as of now.

        A session whose agent has no definition that can be read is left out. While nothing changes, it is the very same list.
        """
        await self.refresh()
        revision = self._revision
        kept = self._subscribers.get(workspace)
        if kept is not None and kept[0] == revision:
            return kept[1]
        known = self._of(workspace)
        sessions: dict[str, list[str]] = {}
        for session, agent in sorted(known.bindings.items()):
            sessions.setdefault(agent, []).append(session)
        found, whole = [], True
        for agent, theirs in sessions.items():
            version = known.versions.get(agent)
            if version is not None:
                try:
                    found.append((await self._version(workspace, agent, version), theirs))
                except (NotFound, Damaged):
                    # It may only not be there yet, on the server that was asked.
                    whole = False
        if whole:
            self._subscribers[workspace] = revision, found
        return found

    async def workspaces(self) -> list[str]:
        """The workspaces that have an agent or a session."""
        await self.refresh()
        return sorted(self._known)

    async def refresh(self) -> None:
        """Read on from where this was read to, up to everything that had been written when this was called.

        Costs one small question when nothing has changed.

        Raises:
            Unavailable: no answer reached so far.
        """
        asked_at = asyncio.get_running_loop().time()
        wanted = await self._bucket.revision()
        attempts = 0
        while self._revision < wanted:
            page = await self._bus.range(
                bucket_stream(AGENTS_BUCKET), KEY_ALL.at(bucket=AGENTS_BUCKET), self._revision + 1
            )
            for stored in page.messages:
                # Another refresh may have come this far while this one waited for its page.
                if stored.sequence > self._revision:
                    self._take(stored)
                    self._revision = stored.sequence
            if not page.more:
                if page.up_to >= wanted:
                    self._revision = max(self._revision, wanted)
                    break
                attempts += 1
                if attempts > STALE_ATTEMPTS_MAX:
                    raise Unavailable("no server has answered up to the agents' last revision")
        self._fresh_at = max(self._fresh_at, asked_at)

    # --- writing

    async def apply(self, workspace: str, spec: AgentSpec) -> AgentSpec:
        """Make ``spec`` the agent's current definition; an identical one keeps its version.

        Raises:
            BadInput: the pack, the model, a grant, a subscription or the pack's own configuration cannot be used. Unavailable.
        """
        check_name(workspace, "workspace name")
        self.check(spec)
        pointer_key = f"agent.{workspace}.{spec.name}"

        async def load() -> _Current:
            pointer = await self._bucket.get(pointer_key)
            if pointer is None:
                return _Current()
            version = _version_of(pointer.value)
            return _Current(await self._pointed_at(workspace, spec.name, version), version, pointer.revision)

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
                # Another process wrote this version, and may have died before it became current: make it current first.
                new = await self._pointed_at(workspace, spec.name, wanted.version)
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
        assert after.spec is not None  # noqa: S101 - it was written, or was so before
        return after.spec

    async def bind(self, ref: SessionRef, agent: str) -> None:
        """Let the session belong to ``agent`` (a name): it gets the events that the agent subscribes to."""
        value = json.dumps({"agent": check_name(agent, "agent name")}).encode()
        await self._bucket.put(_session_key(ref), value)

    async def unbind(self, ref: SessionRef) -> None:
        """Let the session get no more events."""
        await self._bucket.delete(_session_key(ref))

    def check(self, spec: AgentSpec) -> None:
        """See that a definition can be used.

        Raises:
            BadInput: naming what cannot, and what could.
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

    # --- what is known

    def _of(self, workspace: str) -> _Known:
        return self._known.get(workspace) or _Known()

    def _take(self, stored: Stored) -> None:
        value = None if stored.headers.get("KV-Operation") in _DELETED else stored.payload
        try:
            self._enter(stored.subject.split(".", 2)[2], value)
        except Damaged:
            # One entry that cannot be read is as one that is not there; the others count all the same.
            self._enter(stored.subject.split(".", 2)[2], None)

    def _enter(self, key: str, value: bytes | None) -> None:
        match key.split("."):
            case ["agent", workspace, name]:
                known = self._known.setdefault(workspace, _Known())
                if value is None:
                    known.versions.pop(name, None)
                else:
                    known.versions[name] = _version_of(value)
            case ["session", workspace, session]:
                known = self._known.setdefault(workspace, _Known())
                if value is None:
                    known.bindings.pop(session, None)
                else:
                    known.bindings[session] = str(_object(value).get("agent", ""))
            case _:
                # A version, which is read when it is asked for; or a key of a newer release.
                pass

    async def _pointed_at(self, workspace: str, name: str, version: int) -> AgentSpec:
        """A version that is known to be there.

        Raises:
            Unavailable: the server that answered has not seen it yet. Damaged.
        """
        try:
            return await self._version(workspace, name, version)
        except NotFound:
            raise Unavailable(f"agent {name}@{version} is not to be had just now", hint="try again") from None

    async def _version(self, workspace: str, name: str, version: int) -> AgentSpec:
        cached = self._versions.get((workspace, name, version))
        if cached is not None:
            return cached
        entry = await self._bucket.get(f"agent.{workspace}.{name}.{version}")
        if entry is None:
            raise NotFound(
                f"there is no agent {name}@{version}",
                hint=f"`anchorwatch agents show {name}` shows its current version",
            )
        try:
            spec = AgentSpec.stored(json.loads(entry.value))
        except ValueError as error:
            raise Damaged(
                f"agent {name}@{version} is stored in a form that cannot be read: {error}"
            ) from None
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
        raise Damaged("an entry of the bucket `agents` is no JSON object")
    return content


def _version_of(value: bytes) -> int:
    version = _object(value).get("version")
    if not isinstance(version, int) or version < 1:
        raise Damaged("an entry of the bucket `agents` names no version")
    return version


def _check_subscription(filter_: str) -> None:
    tokens = filter_.split(".")
    fine = all(token and not any(c.isspace() for c in token) for token in tokens)
    wild = (
        all(token in ("*", ">") for token in tokens if "*" in token or ">" in token)
        and ">" not in tokens[:-1]
    )
    if not (fine and wild):
        raise BadInput(
            f"{filter_[:80]!r} is no event filter",
            hint="tokens separated by dots, `*` for any one, `>` at the end for any rest; for example fleet.>",
        )


def subscribed(spec: AgentSpec, event: str) -> bool:
    """Whether the agent wants the event ``<source>.<type…>``."""
    return any(matches(filter_, event) for filter_ in spec.subscriptions)
