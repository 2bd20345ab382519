"""The parts of the sandbox, each by itself."""

from __future__ import annotations

import http.server
import struct
import sys
import threading
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from handrail import AgentOptions, DefinitionError, Executor, Sandbox, Stage, WrongUse, step
from handrail.codec.codec import Codec
from handrail.model.sandbox import chosen_sandbox, sandbox_in
from handrail.sandbox.denials import Denials
from handrail.sandbox.programs import BACKENDS, needs_of
from handrail.sandbox.proxy import Proxy
from handrail.sandbox.seccomp import filter_for, knows
from tests.sandbox.conftest import World, run_script

X86, ARM = 0xC000003E, 0xC00000B7
ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026


def run_filter(code: bytes, number: int, architecture: int, *arguments: int) -> int:
    """What a filter answers to a system call: a small machine for the few words that it uses."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, *(*arguments, *[0] * 6)[:6])
    held, at = 0, 0
    while True:
        word, yes, no, value = struct.unpack_from("=HBBI", code, at * 8)
        at += 1
        if word == 0x20:
            (held,) = struct.unpack_from("=I", data, value)
        elif word == 0x15:
            at += yes if held == value else no
        elif word == 0x35:
            at += yes if held >= value else no
        else:
            assert word == 0x06
            return int(value)


@pytest.mark.parametrize(
    ("machine", "architecture", "number", "arguments", "answer"),
    [
        ("x86_64", X86, 0, (), ALLOW),
        ("x86_64", X86, 41, (2, 1), ALLOW),
        ("x86_64", X86, 41, (1, 1), EPERM),
        ("x86_64", X86, 41, (1 + (1 << 32), 1), EPERM),
        ("x86_64", X86, 53, (1, 1), ALLOW),
        ("x86_64", X86, 16, (0, 0x5412), EPERM),
        ("x86_64", X86, 16, (0, 0x541C), EPERM),
        ("x86_64", X86, 16, (0, 0x5401), ALLOW),
        ("x86_64", X86, 248, (), EPERM),
        ("x86_64", X86, 250, (), EPERM),
        ("x86_64", X86, 425, (), ENOSYS),
        ("x86_64", X86, 0x40000029, (1,), ENOSYS),
        ("x86_64", 0x40000003, 41, (1,), ENOSYS),
        ("aarch64", ARM, 198, (1,), EPERM),
        ("aarch64", ARM, 198, (2,), ALLOW),
        ("aarch64", ARM, 29, (0, 0x5412), EPERM),
        ("aarch64", ARM, 219, (), EPERM),
        ("aarch64", ARM, 425, (), ENOSYS),
        ("aarch64", ARM, 63, (), ALLOW),
        ("aarch64", X86, 41, (1,), ENOSYS),
    ],
)
def test_the_filter_answers_each_call(
    machine: str, architecture: int, number: int, arguments: tuple[int, ...], answer: int
) -> None:
    """Sockets of the machine, keys and typed input are refused; the rest goes through."""
    assert answer == run_filter(filter_for(machine), number, architecture, *arguments)


def test_only_two_kinds_of_processors_are_known() -> None:
    """For another there is no filter, and so no sandbox."""
    assert knows("x86_64")
    assert knows("aarch64")
    assert not knows("riscv64")


@pytest.mark.parametrize(
    ("hosts", "asked", "answer"),
    [
        (["pypi.org"], ("pypi.org", 443), True),
        (["pypi.org"], ("PyPI.org.", 80), True),
        (["pypi.org"], ("pypi.org", 22), False),
        (["pypi.org"], ("evil-pypi.org", 443), False),
        (["pypi.org"], ("pypi.org.evil.test", 443), False),
        (["pypi.org"], ("files.pypi.org", 443), False),
        (["*.pypi.org"], ("files.pypi.org", 443), True),
        (["*.pypi.org"], ("pypi.org", 443), False),
        (["localhost:8080"], ("localhost", 8080), True),
        (["localhost:8080"], ("localhost", 80), False),
        (["[::1]:8080"], ("::1", 8080), True),
        ([], ("pypi.org", 443), False),
    ],
)
def test_the_proxy_knows_its_hosts(hosts: list[str], asked: tuple[str, int], answer: bool) -> None:
    """A name is that name alone, a star stands for what is below it, a port for that port."""
    proxy = Proxy(hosts)
    assert proxy.allows(*asked) is answer
    proxy.close()


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        (b"touch: cannot touch '/etc/x': Read-only file system\n", "/etc/x: Read-only file system"),
        (b"cat: .handrail/runs.db: Permission denied\n", ".handrail/runs.db: Permission denied"),
        (b"OSError: [Errno 30] Read-only file system: '/a/b'\n", "/a/b: Read-only file system"),
        (b'{"output": "sh: 1: cannot create /etc/x: Permission denied\\n"}', "/etc/x: Permission"),
        (b"curl: (6) Could not resolve host: evil.test\n", "Could not resolve host"),
        (b"Error: EROFS: read-only file system, open '/a/b.txt'\n", "EROFS"),
    ],
)
@pytest.mark.parametrize("cut", [0, 7, 30])
def test_a_refusal_is_read_from_the_output(printed: bytes, found: str, cut: int) -> None:
    """What was refused is named, however the output is cut, and told once."""
    denials = Denials()
    told = [
        what for part in (printed[:cut], printed[cut:], printed) for what in denials.heard(part)
    ]
    assert len(told) <= 1 + (cut > 0)  # a path may come after the words that were read already
    assert found in told[0]
    assert not list(denials.heard(printed))


def test_a_program_that_is_refused_a_thousand_times_tells_of_some() -> None:
    """The events of one launch are bounded."""
    denials = Denials()
    lines = b"".join(b"cat: /k/%d: Permission denied\n" % number for number in range(1000))
    assert len(list(denials.heard(lines))) == 40


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"write": "src"}, "write of a Sandbox must be a list of paths"),
        ({"hide": [1]}, "hide of a Sandbox must be a list of paths"),
        ({"network": "some"}, "network of a Sandbox must be"),
        ({"network": False}, "network of a Sandbox must be"),
        ({"network": ["https://a.b"]}, "is no host"),
        ({"env": "none"}, "env of a Sandbox must be"),
        ({"env": ["A=B"]}, "names of variables"),
    ],
)
def test_a_sandbox_that_cannot_be_is_refused(given: dict[str, Any], said: str) -> None:
    """What is wrong is named where it is written."""
    with pytest.raises(DefinitionError, match=said):
        Sandbox(**given)


def test_a_wrong_setting_is_refused_wherever_it_is_written() -> None:
    """An agent, a command, a stage and an executor take the same."""
    for make in (
        lambda: AgentOptions(sandbox="yes"),  # type: ignore[arg-type]
        lambda: step("a").command("true", sandbox=1),  # type: ignore[arg-type]
        lambda: Stage("a", "true", sandbox="on"),  # type: ignore[arg-type]
        lambda: Executor(sandbox="on"),  # type: ignore[arg-type]
        lambda: AgentOptions(inherit_env="none"),  # type: ignore[arg-type]
        lambda: step("a").command("true", inherit_env="none"),  # type: ignore[arg-type]
    ):
        with pytest.raises((DefinitionError, WrongUse)):
            make()


def test_the_nearest_setting_counts() -> None:
    """False is a setting, and no setting is none."""
    own = Sandbox(network="none")
    assert chosen_sandbox(None, True) == Sandbox()
    assert chosen_sandbox(own, True) == own
    assert chosen_sandbox(False, own) is None
    assert chosen_sandbox(None, None) is None
    assert attrs.evolve(AgentOptions(sandbox=own)).over(AgentOptions(sandbox=True)).sandbox == own


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        ({}, None),
        ({"sandbox": True}, True),
        ({"sandbox": False}, False),
        ({"sandbox": {"network": "none", "write": ["build"]}}, Sandbox(["build"], network="none")),
    ],
)
def test_a_project_has_a_sandbox(table: dict[str, Any], wanted: Any) -> None:
    """`[tool.handrail]` has true, false, or the fields of one."""
    assert sandbox_in({"file": "pyproject.toml", **table}) == wanted


def test_a_project_with_a_wrong_field_is_told_so() -> None:
    """The word that was meant is named."""
    with pytest.raises(DefinitionError, match="Did you mean 'network'"):
        sandbox_in({"file": "pyproject.toml", "sandbox": {"netwrk": "none"}})


def test_each_backend_that_is_a_program_has_a_row() -> None:
    """What its program needs for itself is said once; an unknown one needs nothing."""
    from handrail.agents.routes import backend_names

    assert set(backend_names()) - {"api"} == set(BACKENDS)
    for needs in BACKENDS.values():
        assert needs.hosts
        assert needs.variables
        assert needs.states
    assert needs_of("my-own") == needs_of("cat")
    there = {"ANTHROPIC_BASE_URL": "http://user:pw@localhost:8080/v1"}
    assert needs_of("claude").hosts_for(there)[-1] == "localhost:8080"


# -- the proxy at work -----------------------------------------------------------------------------


class _Registry(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"{self.path} for {self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def registry() -> Iterator[int]:
    """A registry of packages on this machine; its port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_registry_that_is_listed_is_reached(world: World, registry: int) -> None:
    """By a request and by a tunnel; another port of the same machine is refused, and told."""
    script = (
        f"curl -sS http://127.0.0.1:{registry}/simple/x; echo; "
        f"curl -sS -p http://127.0.0.1:{registry}/tunnel; echo; "
        f'{sys.executable} -c "import urllib.request as u; '
        f"print(u.urlopen('http://127.0.0.1:{registry}/python').read().decode())\"; "
        f"curl -sS http://127.0.0.1:{registry + 1}/\n"
    )
    sandbox = Sandbox(network=(f"127.0.0.1:{registry}",))
    outcome = run_script(world, "command", script, sandbox, own_tree=False)
    for path in ("/simple/x", "/tunnel", "/python"):
        assert f"{path} for 127.0.0.1:{registry}" in outcome.printed
    (denied,) = [event for event in outcome.denied if event.source == "proxy"]
    assert denied.what == f"127.0.0.1:{registry + 1}"


def test_a_server_of_the_launch_is_its_own(world: World) -> None:
    """A loopback inside is another than the machine's: a test may serve and ask itself."""
    code = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "c = socket.create_connection(s.getsockname()); print('served')"
    )
    outcome = run_script(
        world, "command", f'{sys.executable} -c "{code}"', Sandbox(network="none"), own_tree=False
    )
    assert outcome.printed == "served\n"


# -- what people are told --------------------------------------------------------------------------


def test_people_are_told_what_was_refused(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    """The console, `show`, its JSON and `diff` say what, and how it is known."""
    pytest.importorskip("rich")
    pytest.importorskip("cyclopts")
    from handrail.cli import main

    flow = world.repo / "flow.py"
    flow.write_text(
        "from handrail import Sandbox, step, workflow\n\n\n"
        "@workflow\ndef flow(path: str):\n"
        "    line = f'curl -sS http://evil.test/; echo x > {path}'\n"
        "    hosts = Sandbox(network=['listed.test'])\n"
        "    yield from step('a').command(line, check=False, sandbox=hosts)\n"
    )
    for run, path in (("r-1", "/etc/x"), ("r-2", "/tmp/x")):
        assert main(["run", str(flow), "--run-id", run, "--input", f"path={path}"]) == 0
    said = capfd.readouterr()
    assert "its sandbox refused evil.test:80" in said.err + said.out
    assert "its sandbox refused /etc/x: Read-only file system, as its output says" in (
        said.err + said.out
    )
    assert main(["show", "r-1"]) == 0
    said = capfd.readouterr()
    assert "refused by sandboxes: 2" in said.out
    assert "evil.test:80" in said.out
    assert main(["show", "r-1", "--json"]) == 0
    assert '"source": "proxy"' in capfd.readouterr().out
    assert main(["diff", "r-1", "r-2"]) == 1
    assert "the runs differ in denied" in capfd.readouterr().out


def test_the_command_has_the_exit_code_of_what_it_ran(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    """`handrail sandbox` is a step's boundary by hand."""
    pytest.importorskip("cyclopts")
    from handrail.cli import main

    line = f"echo x > /etc/x; echo x > {world.outside}/in; printenv MY_TOKEN; exit 3"
    words = ["sandbox", "--network", "none", "--write", str(world.outside), "--", "sh", "-c", line]
    assert main(words) == 3
    said = capfd.readouterr()
    assert "Read-only file system" in said.err
    assert said.out == ""
    assert (world.outside / "in").exists()
    assert (
        main(["sandbox", "--network", "listed.test", "--", "curl", "-sS", "http://evil.test"]) == 0
    )
    assert "handrail: refused evil.test:80" in capfd.readouterr().err
    assert main(["sandbox", "--", "no-such-program"]) == 127
    assert main(["sandbox", "--network", "none", "--network", "a.b", "--", "true"]) == 2


def test_doctor_has_a_row(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """It says whether a sandbox can be enforced; where a project needs one, it is needed."""
    pytest.importorskip("cyclopts")
    from handrail.cli.doctor import check_sandbox

    assert (check_sandbox().ok, check_sandbox().needed) == (True, False)
    (world.repo / "pyproject.toml").write_text("[tool.handrail]\nsandbox = true\n")
    assert check_sandbox().needed
    assert capsys.readouterr().out == ""


def test_a_sandbox_crosses_to_another_machine() -> None:
    """It is written as data with its step, and read again."""
    made = Sandbox(["a"], ["b"], ["c.d"], ["E"])
    codec = Codec()
    assert codec.load(codec.dump(made, where="a", root="sandbox")) == made
