"""What is checked: `nox` runs all that CI runs, `nox -s NAME` one session, `nox -l` lists them.

Every session works on the built package, not on the source tree, so that what is tested is what is
shipped. A Python that is not on this machine is skipped; in CI (where CI is set) it is an error.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.sessions = ["build", "lint", "types", "tests", "bare", "examples", "docs"]
nox.options.error_on_missing_interpreters = bool(os.environ.get("CI"))

ROOT = Path(__file__).parent
DIST = ROOT / "dist"
PYTHONS = ["3.11", "3.12", "3.13"]
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
IN_PARALLEL = ("--numprocesses=auto", "--maxprocesses=4")
BRIEF = ("--hypothesis-profile=brief",)


def group(name: str) -> list[str]:
    """The requirements of a dependency group of pyproject.toml."""
    return list(nox.project.dependency_groups(PROJECT, name))


def wheel(extras: str = "") -> str:
    """The built wheel as a requirement, with these extras."""
    (path,) = DIST.glob("*.whl")
    return f"handrail[{extras}] @ {path.as_uri()}" if extras else str(path)


def contents(path: Path) -> dict[str, bytes]:
    """What an archive holds, by name."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def run_pytest(session: nox.Session, *arguments: str) -> None:
    """Run pytest, with what the user wrote after `--` instead of our own choice if there is any."""
    session.run("python", "-m", "pytest", *(session.posargs or arguments))


@nox.session
def build(session: nox.Session) -> None:
    """Build the sdist and from it the wheel; fail unless the tree gives the same wheel."""
    session.install(*group("build"))
    shutil.rmtree(DIST, ignore_errors=True)
    make = ("python", "-m", "build", "--no-isolation")
    session.run(*make, "--outdir", str(DIST), silent=True)
    (from_sdist,) = DIST.glob("*.whl")
    with tempfile.TemporaryDirectory() as scratch:
        session.run(*make, "--wheel", "--outdir", scratch, silent=True)
        twin = contents(Path(scratch) / from_sdist.name)
    shipped = contents(from_sdist)
    if twin != shipped:
        names = sorted({name for name, _ in twin.items() ^ shipped.items()})
        session.error(f"the wheel from the sdist is not the wheel from the tree: {names}")
    missing = {"handrail/py.typed", "handrail/examples/ship.py"} - shipped.keys()
    if missing:
        session.error(f"the wheel lacks {sorted(missing)}")


@nox.session(python=PYTHONS, requires=["build"])
def tests(session: nox.Session) -> None:
    """Run the suite on the installed wheel with every extra; on later Pythons in brief.

    The commands are tested on the oldest and the newest.
    """
    session.install(wheel("all"), *group("tests-all"))
    brief = () if session.python == PYTHONS[0] else BRIEF
    without = ("--ignore=tests/cli",) if session.python in PYTHONS[1:-1] else ()
    run_pytest(session, *IN_PARALLEL, "--all-extras", *brief, *without)


@nox.session(python=PYTHONS[0], requires=["build"])
def bare(session: nox.Session) -> None:
    """Run what of the suite can run on the wheel with what it needs alone."""
    session.install(wheel(), *group("tests"))
    run_pytest(session, *IN_PARALLEL, *BRIEF)


@nox.session(requires=["build"])
def types(session: nox.Session) -> None:
    """Check the types of the package, its typing tests and the examples, with mypy and pyright."""
    session.install(wheel("all"), *group("types"))
    session.run("mypy", *session.posargs)
    session.run("pyright", *session.posargs, env={"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"})


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, layers, spelling and the changelog's fragments."""
    session.install(*group("lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("lint-imports", "--no-logo", "--no-cache", env={"PYTHONPATH": str(ROOT / "src")})
    session.run("codespell")
    session.run("towncrier", "build", "--draft", "--version", "next", silent=True)


@nox.session(requires=["build"])
def examples(session: nox.Session) -> None:
    """Do what the README's first command does, as a newcomer: nothing may be left behind."""
    session.install(wheel("cli,agents"))
    for example in sorted((ROOT / "examples").glob("*.py")):
        session.run("handrail", "check", str(example))
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as scratch:
        with session.chdir(home):
            session.run("handrail", "quickstart", env={"HOME": home, "TMPDIR": scratch})
        left = sorted(path.name for path in Path(home).iterdir())
        if left:
            session.error(f"quickstart left {left} outside its own folder")


@nox.session(requires=["build"])
def docs(session: nox.Session) -> None:
    """Run the Python code of the README and of every page of the docs."""
    session.install(wheel("all"), *group("docs"))
    run_pytest(session, "-p", "tests.documents", "README.md", "docs")


@nox.session(requires=["build"], default=False)
def cover(session: nox.Session) -> None:
    """Measure the lines and branches that the suite reaches; fail below the floor."""
    session.install(wheel("all"), *group("cover"))
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *(session.posargs or IN_PARALLEL))
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report")


@nox.session(requires=["build"], default=False)
def bench(session: nox.Session) -> None:
    """Print the benchmarks as a table and write them to bench.json."""
    session.install(wheel("all"))
    session.run("python", "-m", "bench", *(session.posargs or ["--json", "bench.json"]))


@nox.session(requires=["build"], default=False)
def soak(session: nox.Session) -> None:
    """Run the slow proofs, and the property tests with many more, and new, examples."""
    session.install(wheel("all"), *group("tests-all"))
    run_pytest(session, "-m", "soak or not soak", "--hypothesis-profile=soak", *IN_PARALLEL)
