"""The word check: no phrase of tools/words.toml in the docs or in the texts of the product.

    python tools/check_words.py [--count] [PATH ...]

It exits 1 and prints `path:line: phrase (write: ...)` for each hit.
``--count`` prints the number of hits for each file, most first.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("shared", "services", "packs", "tools")
TEXT_TOKENS = {tokenize.STRING, tokenize.COMMENT} | {
    getattr(tokenize, name) for name in ("FSTRING_MIDDLE",) if hasattr(tokenize, name)
}


def phrases() -> list[tuple[re.Pattern[str], str]]:
    listed = tomllib.loads((ROOT / "tools" / "words.toml").read_text(encoding="utf-8"))["phrase"]
    return [(re.compile(each["pattern"], re.IGNORECASE), each["write"]) for each in listed]


def files() -> list[Path]:
    """The Markdown of the project and the Python of the product."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "packs").rglob("*.md")]
    code = [path for top in PRODUCT for path in (ROOT / top).rglob("*.py")]
    return sorted(path for path in (*pages, *code) if ".venv" not in path.parts)


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Each numbered line of text: all of a page; of Python, what strings and comments hold."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        # A name of a test or a file in backticks is not prose.
        yield from enumerate((re.sub(r"`[^`]*`", "`", line) for line in text.splitlines()), start=1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in TEXT_TOKENS:
            yield from enumerate(token.string.splitlines(), start=token.start[0])


def hits(path: Path, listed: list[tuple[re.Pattern[str], str]]) -> Iterator[str]:
    for number, line in lines(path):
        for pattern, write in listed:
            if found := pattern.search(line):
                yield f"{path.relative_to(ROOT)}:{number}: {found[0]!r} (write: {write})"


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the wording of docs and product texts.")
    parser.add_argument("--count", action="store_true", help="print the number of hits for each file")
    parser.add_argument("paths", nargs="*", type=Path, help="check these files only")
    arguments = parser.parse_args()
    listed = phrases()
    chosen = [path.resolve() for path in arguments.paths] or files()
    found = [hit for path in chosen for hit in hits(path, listed)]
    if arguments.count:
        for name, number in Counter(hit.split(":", 1)[0] for hit in found).most_common():
            print(f"{number:5} {name}")
        return 0
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
