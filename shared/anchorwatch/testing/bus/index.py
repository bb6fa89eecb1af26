"""Which subjects of a stream match a filter, without looking at all of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator


class SubjectNode:
    """One token of the tree of subjects. ``sequences`` of the messages stored at exactly this subject, ascending."""

    __slots__ = ("children", "sequences")

    def __init__(self) -> None:
        self.children: dict[str, SubjectNode] = {}
        self.sequences: list[int] = []


class SubjectIndex:
    """A tree by token. Dictionaries keep the order of insertion, so every walk is the same in every run."""

    def __init__(self) -> None:
        self._root = SubjectNode()

    def add(self, subject: str, sequence: int) -> SubjectNode:
        """Note a stored message; sequences only grow."""
        node = self._root
        for token in subject.split("."):
            child = node.children.get(token)
            if child is None:
                child = node.children[token] = SubjectNode()
            node = child
        node.sequences.append(sequence)
        return node

    def discard(self, subject: str, sequence: int) -> None:
        """Forget a message that is gone, and the branch that it leaves empty."""
        path = [self._root]
        tokens = subject.split(".")
        for token in tokens:
            path.append(path[-1].children[token])
        sequences = path[-1].sequences
        del sequences[bisect_left(sequences, sequence)]
        for token in reversed(tokens):
            node = path.pop()
            if node.children or node.sequences:
                break
            del path[-1].children[token]

    def match(self, filter_: str) -> Iterator[list[int]]:
        """The sequences of every subject that matches, one list for each; not to be changed, nor the index meanwhile."""
        nodes = [self._root]
        tokens = filter_.split(".")
        for token in tokens[:-1] if tokens[-1] == ">" else tokens:
            if token == "*":
                nodes = [child for node in nodes for child in node.children.values()]
            else:
                nodes = [child for node in nodes if (child := node.children.get(token)) is not None]
            if not nodes:
                return
        if tokens[-1] == ">":
            stack = [child for node in reversed(nodes) for child in reversed(node.children.values())]
            while stack:
                node = stack.pop()
                if node.sequences:
                    yield node.sequences
                stack.extend(reversed(node.children.values()))
            return
        for node in nodes:
            if node.sequences:
                yield node.sequences

    def last(self, filter_: str) -> int:
        """The last sequence of all that matches; 0 when nothing does. This is what a fence compares."""
        return max((sequences[-1] for sequences in self.match(filter_)), default=0)


def overlap(one: str, other: str) -> bool:
    """Whether some subject matches both patterns."""
    mine, theirs = one.split("."), other.split(".")
    for left, right in zip(mine, theirs, strict=False):
        if ">" in (left, right):
            return True
        if left != right and "*" not in (left, right):
            return False
    return len(mine) == len(theirs)


__all__ = ["SubjectIndex", "overlap"]
