"""The yard's actions for each request; `server` is the transport."""

from __future__ import annotations

import asyncio
import signal
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from anchorwatch.packs import Conflict, NotFound, Refused

from anchorwatch_fleet.instances import Priority, describe_exit
from anchorwatch_fleet.yard.book import Book, Effect
from anchorwatch_fleet.yard.processes import Processes
from anchorwatch_fleet.yard.roster import Roster

TERM_S_MAX = 2.0
KILL_S_MAX = 5.0

Hook = Callable[[str, Effect], Awaitable[None]]
"""Called at the critical points (``before_spawn``, ``after_spawn``), so that tests can crash there."""

_STOP, _RESTART, _SHUTDOWN = "stop", "restart", "shutdown"


async def no_hook(_point: str, _effect: Effect) -> None:
    """Do nothing."""


class Yard:
    """Instances in a `Roster`, effects in a `Book` (both outlive a crash), workers in `Processes` (which die with the yard).

    For each effect key the intention is stored before the action, and the result after it. Between the two, the workers'
    births tell what was really done.
    """

    def __init__(
        self,
        book: Book,
        roster: Roster,
        processes: Processes,
        *,
        hook: Hook = no_hook,
        term_s_max: float = TERM_S_MAX,
    ) -> None:
        self._book = book
        self._roster = roster
        self._processes = processes
        self._hook = hook
        self._term_s_max = term_s_max
        self._ending: dict[str, str] = {}
        self._busy: set[str] = set()
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def recover(self) -> None:
        """Settle what the previous yard left: its workers died with it, and births tell the state of partial effects."""
        born = self._born()
        for effect in self._book.intended():
            for instance_id, epoch in effect.targets:
                known = self._roster.find(instance_id)
                if effect.verb == _STOP:
                    self._roster.lose(instance_id, "stopped", "")
                elif (instance_id, epoch) in born and (known is None or known.epoch < epoch):
                    self._roster.begin(instance_id, epoch, effect.key, _priority(effect))
            if effect.verb == _STOP or born.issuperset(effect.targets):
                self._book.note(effect.done(_instances(effect)))
        for each in self._roster.live():
            self._roster.lose(each.id, "exited", "the yard ended, and its workers with it")

    # ------------------------------------------------------------ requests with an effect key

    async def launch(
        self, effect_key: str, count: int, priority: Priority, limit: int | None
    ) -> dict[str, Any]:
        """Start ``count`` instances; a used key returns the instances of its first use.

        Raises:
            Conflict: the key belongs to another request.
            Refused: more than ``limit`` instances would be live.
        """
        args = {"count": count, "priority": priority}
        async with self._locks["launch"]:
            effect = self._known(effect_key, "launch", args)
            if effect is not None and effect.state == "done":
                return {**effect.result, "replayed": True}
            with self._working_on(effect_key):
                if effect is None:
                    self._roster.check_room(count, limit)
                    targets = tuple((instance_id, 1) for instance_id in self._book.new_ids(count))
                    effect = Effect(effect_key, "launch", args, targets=targets)
                    self._book.note(effect)
                await self._hook("before_spawn", effect)
                born = self._born()
                for target in effect.targets:
                    if target not in born:
                        await self._start(*target, effect)
                await self._hook("after_spawn", effect)
                effect = effect.done(_instances(effect))
                self._book.note(effect)
            return {**effect.result, "replayed": False}

    async def stop(self, effect_key: str, instance_id: str) -> dict[str, Any]:
        """End an instance; an ended one stays unchanged.

        Raises:
            Conflict: the key belongs to another request.
            NotFound: the instance is unknown.
        """
        self._roster.get(instance_id)
        async with self._locks[instance_id]:
            instance = self._roster.get(instance_id)
            effect = self._known(effect_key, _STOP, {"id": instance_id})
            if effect is not None and effect.state == "done":
                return {**effect.result, "state": instance.state, "replayed": True}
            with self._working_on(effect_key):
                effect = Effect(
                    effect_key, _STOP, {"id": instance_id}, targets=((instance_id, instance.epoch),)
                )
                self._book.note(effect)
                if instance.live:
                    await self._terminate(instance_id, _STOP)
                result = {**_instances(effect), "was_live": instance.live}
                self._book.note(effect.done(result))
            return {**result, "state": self._roster.get(instance_id).state, "replayed": False}

    async def restart(self, effect_key: str, instance_id: str) -> dict[str, Any]:
        """End an instance's process and start another in its place.

        The key is recorded, and does *not* prevent a second restart under it: a caller in doubt queries the effect.

        Raises:
            Conflict: the key belongs to another request.
            NotFound: the instance is unknown.
            Refused: it has ended; launch another.
        """
        self._roster.get(instance_id)
        self._known(effect_key, _RESTART, {"id": instance_id})
        async with self._locks[instance_id]:
            instance = self._roster.get(instance_id)
            if not instance.live:
                raise Refused(f"{instance_id} has ended ({instance.state})", hint="launch another instance")
            with self._working_on(effect_key):
                target = (instance_id, instance.epoch + 1)
                effect = Effect(effect_key, _RESTART, {"id": instance_id}, targets=(target,))
                self._book.note(effect)
                await self._terminate(instance_id, _RESTART)
                await self._hook("before_spawn", effect)
                await self._start(*target, effect)
                await self._hook("after_spawn", effect)
                result = {**_instances(effect), "epoch": target[1]}
                self._book.note(effect.done(result))
            return result

    def what_became_of(self, effect_key: str) -> dict[str, Any]:
        """``done``, ``not_done``, or ``unknown``: in progress, or started by a yard that died."""
        effect = self._book.effect(effect_key)
        if effect is None:
            return {"state": "not_done"}
        if effect.state == "done":
            return {"state": "done", "verb": effect.verb, "result": dict(effect.result)}
        begun = effect_key in self._busy or not self._born().isdisjoint(effect.targets)
        return {"state": "unknown" if begun else "not_done", "verb": effect.verb}

    # ------------------------------------------------------------ other requests

    async def kill(self, instance_id: str, how: str) -> dict[str, Any]:
        """Injure a worker: ``kill`` it with signal 9, or let it ``hang`` (the process exists and does nothing).

        Raises:
            NotFound: the instance is unknown or has no process.
        """
        instance = self._roster.get(instance_id)
        number = signal.SIGSTOP if how == "hang" else signal.SIGKILL
        if not self._processes.signal(instance_id, number):
            raise NotFound(f"{instance_id} has no process: it is {instance.state}")
        if number is signal.SIGKILL:
            await self._processes.ended(instance_id, KILL_S_MAX)
        return {"id": instance_id, "pid": instance.pid, "state": self._roster.get(instance_id).state}

    def logs(self, instance_id: str, lines_max: int) -> list[str]:
        """The last lines of an instance's log.

        Raises:
            NotFound: the instance is unknown.
        """
        return self._processes.log_lines(self._roster.get(instance_id).id, lines_max)

    def launches(self) -> dict[str, dict[str, int]]:
        """For each effect key the number of starts of each instance, from the workers' births."""
        counts: dict[str, dict[str, int]] = {}
        for birth in self._processes.births():
            of_key = counts.setdefault(birth.effect_key, {})
            of_key[birth.instance] = of_key.get(birth.instance, 0) + 1
        return counts

    async def shutdown(self) -> None:
        """End all workers, gently first."""
        await asyncio.gather(*(self._terminate(each.id, _SHUTDOWN) for each in self._roster.live()))

    # ------------------------------------------------------------ within

    def _known(self, effect_key: str, verb: str, args: Mapping[str, Any]) -> Effect | None:
        effect = self._book.effect(effect_key)
        if effect is not None and (effect.verb, effect.args) != (verb, args):
            raise Conflict(f"effect key {effect_key} belongs to {effect.verb} {dict(effect.args)}")
        return effect

    @contextmanager
    def _working_on(self, effect_key: str) -> Iterator[None]:
        self._busy.add(effect_key)
        try:
            yield
        finally:
            self._busy.discard(effect_key)

    def _born(self) -> set[tuple[str, int]]:
        return {(birth.instance, birth.epoch) for birth in self._processes.births()}

    async def _start(self, instance_id: str, epoch: int, effect: Effect) -> None:
        self._ending.pop(instance_id, None)
        self._roster.begin(instance_id, epoch, effect.key, _priority(effect))
        try:
            pid = await self._processes.start(instance_id, epoch, effect.key, self._exited)
        except OSError as error:
            self._roster.end(instance_id, "exited", f"could not be started: {error}")
        else:
            self._roster.started(instance_id, pid)

    async def _terminate(self, instance_id: str, why: str) -> None:
        self._ending[instance_id] = why
        if not self._processes.signal(instance_id, signal.SIGTERM):
            return
        if not await self._processes.ended(instance_id, self._term_s_max):
            self._processes.signal(instance_id, signal.SIGKILL)
            await self._processes.ended(instance_id, KILL_S_MAX)

    def _exited(self, instance_id: str, epoch: int, code: int) -> None:
        """Handle the end of a process; ``code`` is the negative signal number if a signal ended it."""
        instance = self._roster.find(instance_id)
        if instance is None or instance.epoch != epoch:
            return
        status, number = (None, -code) if code < 0 else (code, None)
        match self._ending.pop(instance_id, None):
            case "restart":
                # Not an end: the next epoch starts at once. If the yard dies first, `recover` records the end.
                return
            case "stop":
                self._roster.end(instance_id, "stopped", instance.last_error, status, number)
            case "shutdown":
                self._roster.end(
                    instance_id, "exited", "the yard was stopped, and its workers with it", status, number
                )
            case _:
                last_line = "".join(self._processes.log_lines(instance_id, 1)) if status else ""
                error = ": ".join(part for part in (describe_exit(status, number), last_line) if part)
                self._roster.end(instance_id, "exited", error, status, number)


def _priority(effect: Effect) -> Priority:
    return "emergency" if effect.args.get("priority") == "emergency" else "normal"


def _instances(effect: Effect) -> dict[str, Any]:
    return {"instances": [instance_id for instance_id, _ in effect.targets]}
