"""What the package says of itself is what its sessions show."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT, TOOLS = PYPROJECT["project"], PYPROJECT["tool"]


def of_noxfile(*names: str) -> list[Any]:
    """The values of constants of the noxfile."""
    known: dict[str, Any] = {}
    for node in ast.parse((ROOT / "noxfile.py").read_text("utf-8")).body:
        if isinstance(node, ast.Assign):
            (target,) = node.targets
            try:
                values = eval(compile(ast.Expression(node.value), "noxfile", "eval"), {}, known)
            except (NameError, AttributeError):  # it needs nox, or a function
                continue
            names_of = target.elts if isinstance(target, ast.Tuple) else [target]
            several = values if isinstance(target, ast.Tuple) else [values]
            known.update(zip(map(ast.unparse, names_of), several, strict=True))
    return [known[name] for name in names]


def test_classifiers_name_the_pythons_that_were_tried() -> None:
    """Each Python of a classifier has run tests, or all that the base needs comes in wheels."""
    (installs_on,) = of_noxfile("INSTALLS_ON")
    prefix = "Programming Language :: Python :: "
    named = {name.removeprefix(prefix) for name in PROJECT["classifiers"] if prefix in name}
    assert named == {"3 :: Only"} | {name for name in installs_on if not name.endswith("t")}


def test_fast_is_no_part_of_the_base() -> None:
    """The libraries that the sessions without `fast` look for are those that `fast` brings."""
    (fast,) = of_noxfile("FAST")
    extra = PROJECT["optional-dependencies"]["fast"]
    assert sorted(line.partition(">")[0].replace("-", "_") for line in extra) == sorted(fast)
    assert not any(
        name.startswith(("orjson", "ormsgpack", "ahocorasick"))
        for name in (PROJECT["dependencies"])
    )


def test_the_site_has_the_pages_of_the_index_in_its_order() -> None:
    """Who browses the site finds what the index has, in the same groups."""
    index = (ROOT / "docs/index.md").read_text("utf-8").partition("<!--")[0]
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    groups = re.findall(r"^## (?:How-to: )?(.*)$", index, re.MULTILINE)
    assert [name.lower() for name in re.findall(r'^  - "(.*)":$', nav, re.MULTILINE)] == [
        name.lower() for name in groups
    ]
    pages = re.findall(r"^- \[.*?\]\(([^)#]*)\)", index, re.MULTILINE)
    assert re.findall(r'^      - ".*": (\S+)$', nav, re.MULTILINE) == pages


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    """A missing page and a missing anchor are named; those that are there, and addresses, not."""
    (tmp_path / "b").mkdir()
    links = "".join(f'<a href="{to}">' for to in ("b/", "b/#x", "b/#y", "c/", "#z", "https://d/e"))
    (tmp_path / "index.html").write_text(links)
    (tmp_path / "b/index.html").write_text('<p id="x">')
    code = f"import pathlib, build_site; print(build_site.broken(pathlib.Path({str(tmp_path)!r})))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "docs", capture_output=True, text=True, check=True
    )
    found = ["index.html: #z", "index.html: b/#y", "index.html: c/"]
    assert done.stdout.strip() == str(found)


def test_addresses_agree() -> None:
    """The package, the README and the site name one repository."""
    source = PROJECT["urls"]["Source"]
    assert f"git clone {source} " in (ROOT / "README.md").read_text("utf-8")
    assert f"repo_url: {source}\n" in (ROOT / "mkdocs.yml").read_text("utf-8")
    assert f"{source}/security/advisories/new" in (ROOT / "SECURITY.md").read_text("utf-8")


def test_the_readme_names_every_extra() -> None:
    """Whoever reads it knows what can be installed beside the base."""
    text = (ROOT / "README.md").read_text("utf-8").partition("Extras: ")[2]
    assert set(re.findall(r"`(\w+)`", text)) == set(PROJECT["optional-dependencies"])


def test_a_link_of_the_readme_leads_somewhere_on_the_page_of_an_index() -> None:
    """There it has no repository around it: paths become addresses of what is there."""
    hook = TOOLS["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = (ROOT / "README.md").read_text("utf-8")
    for substitution in hook["substitutions"]:
        text = re.sub(substitution["pattern"], substitution["replacement"], text)
    source = PROJECT["urls"]["Source"]
    pages = f"{source}/blob/main/"
    raw = f"{source.replace('github.com', 'raw.githubusercontent.com')}/main/"
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]*)\)", text)
    assert any(picture for picture, _ in links)
    for picture, link in links:
        assert link.startswith("https://")
        own = raw if picture else pages
        if link.startswith((raw, pages)):
            assert (ROOT / link.removeprefix(own).partition("#")[0]).exists(), link
    assert hook["fragments"] == [{"path": "README.md"}]
