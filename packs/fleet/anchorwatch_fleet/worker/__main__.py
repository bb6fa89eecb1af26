"""``python -m anchorwatch_fleet.worker``: started by the yard, with its identity in the environment."""

# Before the costly imports, this process ties itself to the yard and records its birth.
import os
import signal
import sys
from pathlib import Path

from anchorwatch_fleet.worker.lifeline import tie_to
from anchorwatch_fleet.yard.births import Birth, write_birth

NICE = 10


def main() -> None:
    """Run a worker until SIGTERM or the end of the yard.

    Exits with 2 if a yard did not start it.
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
    # Ctrl-C in a terminal reaches the whole process group; the yard ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    write_birth(births, birth)
    # Proofs use all the CPU they get; the mesh has priority.
    os.nice(NICE)

    from anchorwatch_fleet.worker.work import run  # noqa: PLC0415 - see above

    run(birth.instance, birth.epoch)


if __name__ == "__main__":
    main()
