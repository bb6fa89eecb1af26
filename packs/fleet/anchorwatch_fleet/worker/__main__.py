"""``python -m anchorwatch_fleet.worker``: started by the yard, which says in the environment what this worker is."""

# The first acts come before the costly imports: to be tied to the yard, and to say that this process exists.
import os
import signal
import sys
from pathlib import Path

from anchorwatch_fleet.worker.lifeline import tie_to
from anchorwatch_fleet.yard.births import Birth, write_birth

NICE = 10


def main() -> None:
    """Be a worker, until told to stop (SIGTERM) or the yard ends.

    Exits with 2 when it was not started by a yard.
    """
    try:
        birth = Birth(
            os.environ["ANCHORWATCH_FLEET_INSTANCE"],
            int(os.environ["ANCHORWATCH_FLEET_EPOCH"]),
            os.environ["ANCHORWATCH_FLEET_EFFECT_KEY"],
            os.getpid(),
        )
        births, parent = (
            Path(os.environ["ANCHORWATCH_FLEET_BIRTHS"]),
            int(os.environ["ANCHORWATCH_FLEET_PARENT"]),
        )
    except (KeyError, ValueError) as error:
        sys.exit(f"a worker is started by the yard, not by hand: {error!r}")
    tie_to(parent)
    # Ctrl-C in a terminal reaches the whole process group; it is the yard that ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    write_birth(births, birth)
    # Proofs take all the processor that they get; the mesh that looks after them goes first.
    os.nice(NICE)

    from anchorwatch_fleet.worker.work import run  # noqa: PLC0415 - see above

    run(birth.instance, birth.epoch)


if __name__ == "__main__":
    main()
