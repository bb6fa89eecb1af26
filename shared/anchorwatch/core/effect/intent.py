"""The key that names an effect to its provider: from what is intended, never from how the model said it.

An intent is a verb on a resource, the k-th of its kind in its turn. A turn that is planned anew after a crash, in other words
and with other arguments, arrives at the same keys.
"""

from __future__ import annotations

import json
from hashlib import sha256

KEY_CHARS_MAX = 63
_DIGEST_CHARS = 16


def intent_key(workspace: str, session: str, turn: tuple[int, str], intent: tuple[str, str], k: int) -> str:
    """The key of an intent, in every attempt, for ever.

    ``turn``: its run number, and the digest of the record that began it, which no other record has. ``intent``: verb and
    resource. ``k``: how many commands of the same intent stand before it in its run.
    """
    run, origin = turn
    # As JSON: a model has a hand in the resource, and no text of its making may pass for another intent.
    identity = json.dumps([workspace, session, run, origin, *intent, k]).encode()
    return label(workspace, session, str(run), identity)


def label(workspace: str, session: str, number: str, identity: bytes) -> str:
    """A key of at most 63 of a-z, 0-9 and ``-``, so that any provider takes it as a label.

    The readable part may be cut; the digest of ``identity`` at its end tells apart what must be: also two meshes, or one that was
    begun anew, that use one account and count the same runs.
    """
    tail = f"-{number}-{sha256(identity).hexdigest()[:_DIGEST_CHARS]}"
    return f"aw-{workspace}-{session}"[: KEY_CHARS_MAX - len(tail)].rstrip("-") + tail
