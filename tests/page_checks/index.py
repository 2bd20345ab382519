"""Compares the page docs/index.md with the code, in the names of its blocks."""

import re
from pathlib import Path


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


here = PAGE_FILE.parent
pages = [here.parent / "README.md", *here.rglob("*.md")]
for page in pages:
    for target in re.findall(r"\]\(([^)#\s]*(?:#[^)]*)?)\)", page.read_text("utf-8")):
        name, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = page.parent / name if name else page
        assert file.exists(), (page, target)
        assert not anchor or anchor in anchors(file.read_text("utf-8")), (page, target)
linked = {
    (here / name).resolve()
    for name in re.findall(r"\]\(([^)#]+\.md)\)", (here / "index.md").read_text("utf-8"))
}
assert linked == {page.resolve() for page in here.rglob("*.md")} - {(here / "index.md").resolve()}
examples = here.parent / "examples"
whole = "".join(page.read_text("utf-8") for page in here.rglob("*.md"))
for name in ("approvals", "overnight", "pipeline", "team"):  # shown as they are, and short
    source = (examples / f"{name}.py").read_text("utf-8")
    assert whole.count(f"```python\n{source}```\n") == 1 and source.count("\n") < 120, name
