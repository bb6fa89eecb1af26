"""The key that identifies an effect to its provider: derived from the intent, never from the model's wording (INV-1301).

An intent is a verb on a resource, the k-th of its kind in its turn. A turn that is planned again after a crash, with other words
and arguments, gets the same keys.
"""

from __future__ import annotations

import json
from hashlib import sha256

KEY_CHARS_MAX = 63
_DIGEST_CHARS = 16


def intent_key(workspace: str, session: str, turn: tuple[int, str], intent: tuple[str, str], k: int) -> str:
    """The key of an intent, the same in every attempt.

    ``turn``: its run number, and the unique digest of the record that started it. ``intent``: verb and
    resource. ``k``: the number of earlier commands of the same intent in its run.
    """
    run, origin = turn
    # As JSON: a model influences the resource, and must not be able to imitate another intent.
    identity = json.dumps([workspace, session, run, origin, *intent, k]).encode()
    return label(workspace, session, str(run), identity)


def label(workspace: str, session: str, number: str, identity: bytes) -> str:
    """A key of at most 63 of a-z, 0-9 and ``-``, so that any provider accepts it as a label.

    The readable part may be truncated; the digest of ``identity`` at its end keeps keys distinct, also between two meshes, or
    a recreated one, that share an account and count the same runs.
    """
    tail = f"-{number}-{sha256(identity).hexdigest()[:_DIGEST_CHARS]}"
    return f"aw-{workspace}-{session}"[: KEY_CHARS_MAX - len(tail)].rstrip("-") + tail
