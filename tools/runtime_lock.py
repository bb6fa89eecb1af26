"""Print the part of requirements.lock that the distributions need at run time, with hashes: an image contains no test tools.

Names on the command line are printed as well. It follows the `# via` notes that `make lock` writes under each package.
"""

import re
import sys
from pathlib import Path

ENTRY = re.compile(r"^(?P<name>[a-z0-9-]+)==.*?(?=^[a-z]|\Z)", re.MULTILINE | re.DOTALL)
NOTE = re.compile(r"^    #(?: via)? *(?P<asker>.*)$", re.MULTILINE)
MEMBERS = "anchorwatch"


def runtime(lock: str, also: list[str]) -> list[str]:
    entries = {found["name"]: found[0] for found in ENTRY.finditer(lock)}
    askers = {name: {note["asker"] for note in NOTE.finditer(text)} for name, text in entries.items()}
    wanted = set(also)
    while more := {
        name
        for name in entries.keys() - wanted
        if any(asker in wanted or asker.startswith(MEMBERS) for asker in askers[name])
    }:
        wanted |= more
    if unknown := wanted - entries.keys():
        sys.exit(f"not in requirements.lock: {', '.join(sorted(unknown))}")
    return [entries[name] for name in sorted(wanted)]


if __name__ == "__main__":
    sys.stdout.write("".join(runtime(Path("requirements.lock").read_text(encoding="utf-8"), sys.argv[1:])))
