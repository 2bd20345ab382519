"""Make ``llms.txt`` and ``llms-full.txt`` of the pages, for those who read them by machine.

``python docs/llms.py`` writes them beside the README, for a site or a release to take; they are
built, not kept.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
INVISIBLE = re.compile(r"<!-- (?:invisible-code-block|skip).*?-->\n?", re.DOTALL)
LINK = re.compile(r"^- \[([^\]]*)\]\(([^)#]*)\)(.*)$", re.MULTILINE)


def pages() -> list[tuple[str, Path, str]]:
    """The title of each page of the index in its order, the page, and what the index says of it."""
    return [
        (title, DOCS / name, more.lstrip(": ").strip())
        for title, name, more in LINK.findall((DOCS / "index.md").read_text("utf-8"))
    ]


def text_of(page: Path) -> str:
    """A page without what its readers do not see."""
    return re.sub(r"\n{3,}", "\n\n", INVISIBLE.sub("", page.read_text("utf-8"))).strip()


def short() -> str:
    """The index."""
    index = text_of(DOCS / "index.md").split("\n## ")
    head = index[0].split("\n\n")[1]
    lines = ["# handrail", "", f"> {head}", "", "- [README](README.md): what it is, in one page"]
    for section in index[1:]:
        title, _, body = section.partition("\n")
        links = [f"- [{name}](docs/{file}){more}" for name, file, more in LINK.findall(body)]
        lines += ["", f"## {title}", "", *links]
    return "\n".join(lines) + "\n"


def full() -> str:
    """Every page, after the README."""
    parts = [text_of(ROOT / "README.md")]
    parts += [
        f"<!-- docs/{page.relative_to(DOCS)} -->\n\n{text_of(page)}" for _, page, _ in pages()
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Write the files."""
    (ROOT / "llms.txt").write_text(short(), "utf-8")
    (ROOT / "llms-full.txt").write_text(full(), "utf-8")


if __name__ == "__main__":
    main()
