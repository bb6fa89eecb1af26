"""The yard itself: what it does for each request. Transport is `server`'s work."""

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
"""Called at the points where a crash would hurt most (``before_spawn``, ``after_spawn``), so that tests can crash there."""

_STOP, _RESTART, _SHUTDOWN = "stop", "restart", "shutdown"


async def no_hook(_point: str, _effect: Effect) -> None:
    """Do nothing."""


class Yard:
    """Instances in a `Roster`, effects in a `Book` (both outlive a crash), workers in `Processes` (which die with the yard).

    The rule for effect keys: what is about to be done is written before, the result after. Between the two, the workers' own
    birth notes tell what was really done.
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
        """Settle what the former yard left: its workers died with it, and half-done effects are told from the births."""
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
        """Start ``count`` instances; under a key that was used before, answer with those of then.

        Raises:
            Conflict: the key stands for something else.
            Refused: there would be more than ``limit`` live instances.
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
        """End an instance; one that has ended already is left as it is.

        Raises:
            Conflict: the key stands for something else.
            NotFound: there is no such instance.
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

        The key is noted, and does *not* keep a second request from restarting once more: who is in doubt asks what became of it.

        Raises:
            Conflict: the key stands for something else.
            NotFound: there is no such instance.
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
        """``done``, ``not_done``, or ``unknown``: under way, or begun by a yard that then died."""
        effect = self._book.effect(effect_key)
        if effect is None:
            return {"state": "not_done"}
        if effect.state == "done":
            return {"state": "done", "verb": effect.verb, "result": dict(effect.result)}
        begun = effect_key in self._busy or not self._born().isdisjoint(effect.targets)
        return {"state": "unknown" if begun else "not_done", "verb": effect.verb}

    # ------------------------------------------------------------ other requests

    async def kill(self, instance_id: str, how: str) -> dict[str, Any]:
        """Hurt a worker as the world might: ``kill`` it with signal 9, or let it ``hang`` (it is there, and does nothing).

        Raises:
            NotFound: there is no such instance, or it has no process.
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
            NotFound: there is no such instance.
        """
        return self._processes.log_lines(self._roster.get(instance_id).id, lines_max)

    def launches(self) -> dict[str, dict[str, int]]:
        """For each effect key how often each instance was started under it, counted from the workers' own words."""
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
            raise Conflict(f"effect key {effect_key} stands for {effect.verb} {dict(effect.args)}")
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
        """Hear that a process ended; ``code`` is minus the signal's number when a signal ended it."""
        instance = self._roster.find(instance_id)
        if instance is None or instance.epoch != epoch:
            return
        status, number = (None, -code) if code < 0 else (code, None)
        match self._ending.pop(instance_id, None):
            case "restart":
                # Not an end: the next epoch begins at once. If it does not, because the yard dies, `recover` says so.
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
