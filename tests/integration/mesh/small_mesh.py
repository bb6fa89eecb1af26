"""``anchorwatch up`` with helper services: ``small_mesh.py DATA_DIR [--detach] [--port=N] [NAME=N …]``."""

import os
import sys
from pathlib import Path

from anchorwatch.cli import up
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.mesh import managed_process
from anchorwatch.mesh.roster import default_services

HELPER = Path(__file__).with_name("helper_service.py")

if "SMALL_MESH_STOP_S" in os.environ:
    managed_process.STOP_S_MAX = float(os.environ["SMALL_MESH_STOP_S"])
port = next((int(word.removeprefix("--port=")) for word in sys.argv if word.startswith("--port=")), 0)
programs = {name: (sys.executable, str(HELPER), name) for name in default_services(bare=False)}
wish = up.Wish(
    port=port,
    nats_port=0,
    scale=tuple(word for word in sys.argv[2:] if word[0] != "-" and "=" in word),
    bare=True,
    detach="--detach" in sys.argv,
    only=default_services(bare=False),
)
try:
    sys.exit(up.run(wish, Path(sys.argv[1]), programs))
except AnchorWatchError as error:
    sys.stderr.write(f"anchorwatch: {error}\n")
    sys.exit(error.exit_code)
