"""``anchorwatch up`` with helper services in place of the real ones: ``small_mesh.py DATA_DIR [--detach] [NAME=N …]``."""

import sys
from pathlib import Path

from anchorwatch.cli import up
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.mesh.roster import default_services

HELPER = Path(__file__).with_name("helper_service.py")

programs = {name: (sys.executable, str(HELPER), name) for name in default_services(fleet=True)}
wish = up.Wish(
    port=0,
    nats_port=0,
    scale=tuple(word for word in sys.argv[2:] if "=" in word),
    fleet=False,
    detach="--detach" in sys.argv,
    only=default_services(fleet=True),
)
try:
    sys.exit(up.run(wish, Path(sys.argv[1]), programs))
except AnchorWatchError as error:
    sys.stderr.write(f"anchorwatch: {error}\n")
    sys.exit(error.exit_code)
