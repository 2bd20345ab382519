"""Build the site of these pages with zensical, and check every link in it.

``python docs/build_site.py FOLDER`` copies the pages to FOLDER without what readers do not see,
builds ``FOLDER/site`` by ``mkdocs.yml``, and ends with 1 if a link or an anchor leads nowhere.
Links to files outside of ``docs`` lead to the repository.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from llms import DOCS, ROOT, text_of

CONFIG = (ROOT / "mkdocs.yml").read_text("utf-8")
LINK = re.compile(r"(\]\()((?:\.\./)+)([^)#\s]+)")


def repository() -> str:
    """The address of the files of the repository."""
    found = re.search(r"^repo_url: (\S+)$", CONFIG, re.MULTILINE)
    assert found is not None
    return f"{found[1]}/blob/main"


def prepared(page: Path) -> str:
    """The text of a page, with links out of the docs as addresses."""

    def lead(match: re.Match[str]) -> str:
        target = (page.parent / match[2] / match[3]).resolve()
        if target.is_relative_to(DOCS):
            return match[0]
        return f"{match[1]}{repository()}/{target.relative_to(ROOT)}"

    return LINK.sub(lead, text_of(page)) + "\n"


def copy_to(folder: Path) -> None:
    """Put the pages, the pictures and the settings there."""
    for page in DOCS.rglob("*.md"):
        copied = folder / "docs" / page.relative_to(DOCS)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_text(prepared(page), "utf-8")
    shutil.copytree(DOCS / "pictures", folder / "docs/pictures", dirs_exist_ok=True)
    (folder / "mkdocs.yml").write_text(CONFIG, "utf-8")


class Page(HTMLParser):
    """The links and anchors of a built page. Mutable."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the tag names, and where it leads."""
        for name, value in attrs:
            if value and name == "id":
                self.anchors.add(value)
            elif value and name in {"href", "src"} and tag in {"a", "img", "link", "script"}:
                self.links.append(value)


def broken(site: Path) -> list[str]:
    """The links within the site that lead nowhere, each with its page."""
    pages: dict[Path, Page] = {}
    for path in site.rglob("*.html"):
        pages[path] = Page()
        pages[path].feed(path.read_text("utf-8"))
    wrong: list[str] = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            file = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not file.exists() or (anchor and anchor not in pages[file].anchors):
                wrong.append(f"{path.relative_to(site)}: {link}")
    return sorted(set(wrong))


def main(folder: str) -> int:
    """Build it, and say what is broken; the exit code."""
    root = Path(folder)
    copy_to(root)
    subprocess.run(["zensical", "build", "--clean", "--strict"], cwd=root, check=True)  # noqa: S607
    wrong = broken(root / "site")
    print(*wrong, sep="\n")  # noqa: T201
    built = len(list((root / "site").rglob("index.html")))
    assert built >= len(list(DOCS.rglob("*.md"))), built
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
