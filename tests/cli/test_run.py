"""``handrail run``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, spawned

pytestmark = pytest.mark.usefixtures("flows")

GREET = "flows.py:greet --input who=Ada"
VALUE = "Greeting(text='hello Ada', times=2)\n"
RUNS: dict[str, tuple[str, int, str | None, str | None]] = {
    "each step is a line on stderr, and the value comes last": (
        f"{GREET} --input times=3", 0, VALUE.replace("2", "3"), "^▸ greet  started.*text  python",
    ),
    "a quiet run prints the value alone": (f"{GREET} --quiet", 0, VALUE, "^$"),
    "a run that fails": ("flows.py:fails", 1, None, ""),
    "a quiet run that fails says why in one line on stderr": (
        "flows.py:fails --quiet", 1, "", "^.*step 'divide' failed: ZeroDivisionError[^\n]*\n$",
    ),
    "an input is missing": ("flows.py:greet", 2, None, "who"),
    "nothing is on stdout if JSON cannot be had": ("flows.py:greet --json", 2, "", "who"),
    "a run that waits": ("flows.py:asks", 3, None, ""),
    "a quiet one says what it asks": (
        "flows.py:asks --quiet", 3, None, r"\('merge\?' \(Merge it\? \[yes, no\]\)\)",
    ),
    "approve takes the first choice": ("flows.py:asks --gates approve --quiet", 0, "yes\n", ""),
    "default fails a gate that has none": ("flows.py:asks --gates default --quiet", 1, "", ""),
    "fail fails a gate": ("flows.py:asks --gates fail --quiet", 1, "", ""),
    "stdin ends before a gate is answered": (
        "flows.py:asks --gates ask --quiet", 1, None, "the input ended before it was answered",
    ),
    "a run that is cancelled": ("flows.py:gives_up", 4, None, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", RUNS)
def test_a_run_says_how_it_ended(case: str, cli: Cli) -> None:
    """By its exit code (0 succeeded, 1 failed, 2 wrong usage, 3 suspended, 4 cancelled), and on
    stdout and stderr what the name of the case says.
    """
    words, code, out, err = RUNS[case]
    outcome = cli("run", *words.split())
    assert (outcome.code, out if out is None else outcome.out) == (code, out)
    assert re.search(err or "", outcome.err, re.DOTALL), outcome.err


def test_the_exit_codes_are_in_the_help(cli: Cli) -> None:
    """Both helps list every code that the command can end with."""
    for words in (["--help"], ["run", "--help"]):
        told = " ".join(cli(*words).out.split())
        for said in ("0 succeeded", "1 failed", "2 wrong usage", "3 suspended", "4 cancelled"):
            assert said in told
        assert "130 interrupted" in told
        assert "143 terminated" in told


@pytest.mark.parametrize(
    ("step", "last", "said"),
    [
        ("int, 1", "print(1 / 0)", "{file}:11: ZeroDivisionError: division by zero"),
        ("work, 0", "", "step 'a' failed: ZeroDivisionError: division by zero (flow.py:5)"),
        ("int, 1", "raise WorkflowError('not good')", "not good (flow.py:11)"),
        (
            "int, 'x'",
            "",
            "step 'a' failed: ValueError: invalid literal for int() with base 10: 'x'",
        ),
    ],
)
def test_a_quiet_run_names_the_line_that_failed(
    step: str, last: str, said: str, cli: Cli, tmp_path: Path
) -> None:
    """The author's line that raised the error is named, once, if there is one."""
    file = tmp_path / "flow.py"
    file.write_text(
        "from handrail import Steps, WorkflowError, step, workflow\n\n\n"
        "def work(x: int) -> float:\n    return 1 / x\n\n\n"
        "@workflow\ndef flow() -> Steps[None]:\n"
        f"    yield from step('a').call({step})\n    {last}\n"
    )
    outcome = cli("run", "flow.py", "--quiet")
    assert outcome.err == f"handrail: flow failed: {said.format(file=file)}\n"


def test_debug_adds_the_traceback_of_a_failure(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there with HANDRAIL_DEBUG set, and not without."""
    assert "Traceback" not in cli("run", "flows.py:fails").err
    monkeypatch.setenv("HANDRAIL_DEBUG", "1")
    assert "Traceback" in cli("run", "flows.py:fails").err


def test_a_suspended_run_says_how_it_can_be_answered(cli: Cli) -> None:
    """It prints the command that answers and the one that resumes."""
    said = cli("run", "flows.py:asks", "--run-id", "a").err.splitlines()

    assert said[-2:] == [
        "handrail: it waits for an answer: handrail answer a 'merge?' yes   (or no)",
        "handrail: nothing was rolled back; to continue: handrail resume a",
    ]


def test_texts_that_an_agent_made_up_bring_no_codes_to_the_terminal(cli: Cli, folder: Path) -> None:
    """Not in the hint after a suspension, the refusal of an answer, or what is shown of the run."""
    (folder / "odd.py").write_text(
        """from handrail import Steps, step, workflow

@workflow
def odd() -> Steps[str]:
    yield from step("say").call(str, "\\x1b[2Jsaid\\ud83d")
    return (yield from step("q").ask("Go?", choices=["\\x1b[2Jyes", "no\\u202e\\x07\\ud83d"]))
"""
    )
    hint = cli("run", "odd.py", "--run-id", "o").err
    refusal = cli("answer", "o", "q", "perhaps").err
    cli("signal", "o", "go\x07", "--by", "\x1b[2Jann")
    assert cli("fork", "o", "--set", "say=\x1b[2Jother", "--no-run", "--run-id", "p").code == 0
    shown, markdown = cli("show", "o"), cli("report", "o", "--markdown").out
    differs = cli("diff", "o", "p").out
    assert "handrail answer o q" in hint
    assert "yes" in refusal
    assert (shown.code, shown.out.count("handrail answer o q")) == (0, 1)
    assert "signal go from ann" in shown.out
    assert "\u23f8 q  ask  waiting" in markdown
    assert "+other" in differs.replace(" ", "")
    texts = (hint, refusal, shown.out, markdown, differs)
    assert not {"\x1b", "\x07", "\u202e", "\ud83d"} & {*"".join(texts)}


def test_the_name_of_a_file_that_is_no_text_can_be_shown(cli: Cli, folder: Path) -> None:
    """Python reads such names as lone surrogates, which UTF-8 cannot have."""
    (folder / "odd.py").write_text(
        """from handrail import Steps, step, workflow

def read() -> None:
    raise ValueError("odd\\udce9")

@workflow
def odd() -> Steps[None]:
    yield from step("read").call(read)
"""
    )
    cli("run", "odd.py", "--run-id", "o")
    assert cli("report", "o", "--markdown", "-o", "o.md").code == 0
    assert "odd\\udce9" in (folder / "o.md").read_text("utf-8")
    told = spawned("show", "o", "--json")
    assert r"odd\udce9" in told.data["error"], told.err


def test_gates_are_answered_by_lines_of_stdin(process: Cli) -> None:
    """One that does not fit is refused, and the next is taken."""
    outcome = process("run", "flows.py:asks", "--gates", "ask", "--quiet", text="maybe\nno\n")
    assert (outcome.code, outcome.out) == (0, "no\n")
    assert "'maybe' is not an answer, expected one of: yes, no" in outcome.err


NOISY = """\
import os
from handrail import current, step, workflow


def shout() -> int:
    print("printed by the action")
    os.write(1, b"written to file descriptor 1\\n")
    current().log.info("logged by the action")
    return os.system("echo said by a child")


@workflow
def noisy():
    return (yield from step("shout").call(shout))


print("printed by the import")
"""


def test_json_is_alone_on_stdout(process: Cli, folder: Path) -> None:
    """What the module, its actions and their children print goes to stderr with the progress; log
    lines always do.
    """
    (folder / "noisy.py").write_text(NOISY, "utf-8")

    outcome = process("run", "noisy.py", "--json")

    assert outcome.code == 0
    assert outcome.data["value"] == 0
    assert outcome.data["step_results"][0]["path"] == "shout"
    for said in ("by the action", "descriptor 1", "by a child", "by the import", "shout  python"):
        assert said in outcome.err

    outcome = process("run", "noisy.py")

    assert outcome.out.splitlines()[-1] == "0"
    assert ("logged" in outcome.out, "logged by the action" in outcome.err) == (False, True)


def test_json_tells_a_failure_too(cli: Cli) -> None:
    """A run that fails has its result on stdout, and exit code 1."""
    outcome = cli("run", "flows.py:fails", "--json", "--quiet")

    assert outcome.code == 1
    assert outcome.data["status"] == "failed"
    assert outcome.data["failed_step"] == "divide"


MODELS = """\
from handrail import Agent, FakeBackend, step, workflow

told = FakeBackend([lambda turn: str(turn.options.model)] * 2)
plain = Agent("plain", "Do it.", backend=told)
choosy = Agent("choosy", "Do it.", backend=told, model="its-own")


@workflow
def flow():
    first = yield from step("plain").agent(plain)
    second = yield from step("choosy").agent(choosy)
    return f"{first.output} {second.output}"
"""


def test_the_model_is_that_of_agents_that_name_none(cli: Cli, folder: Path) -> None:
    """``--model`` gets to the backend of one agent, and not to that of another."""
    (folder / "models.py").write_text(MODELS, "utf-8")

    assert cli("run", "models.py", "--quiet").out == "None its-own\n"
    assert cli("run", "models.py", "--model", "m-1", "--quiet").out == "m-1 its-own\n"


LONG = """\
import sys
import time
from handrail import step, workflow


@workflow
def long():
    for number in range(20):
        yield from step(f"step-{number}").call(time.sleep, 0.01)
    yield from step("proof").call(prove)


def prove():
    open("proof", "w").close()
"""


def test_a_run_goes_on_when_nobody_reads_its_output_any_more(folder: Path) -> None:
    """With closed pipes for its outputs it still comes to its end, and its exit code says so."""
    (folder / "long.py").write_text(LONG, "utf-8")
    command = [sys.executable, "-m", "handrail.cli", "run", "long.py"]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stderr.readline()
        child.stdout.close()
        child.stderr.close()

    assert child.returncode == 0
    assert (folder / "proof").exists()


def test_the_exit_code_is_that_of_the_run_also_if_nobody_reads_its_json() -> None:
    """A run that waits ends with 3, though its result had no reader."""
    reading, writing = os.pipe()
    os.close(reading)
    words = ["run", "flows.py:asks", "--quiet", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "handrail.cli", *words],
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    os.close(writing)

    assert done.returncode == 3


EXITS = """\
import sys
from handrail import step, workflow


@workflow
def leaves():
    yield from step("leave").call(sys.exit, 3)
"""


def test_an_action_that_exits_is_an_interruption(cli: Cli, folder: Path) -> None:
    """Its own exit code is not taken for one of the command's."""
    (folder / "leaves.py").write_text(EXITS, "utf-8")

    outcome = cli("run", "leaves.py", "--json")

    assert outcome.code == 130
    assert json.loads(outcome.out)["status"] == "suspended"


STUCK = """\
import time
from handrail import step, workflow


@workflow
def stuck():
    yield from step("nap").call(time.sleep, 600).timeout(0.05).default("woken")
"""


def test_a_thread_that_was_left_behind_does_not_keep_the_command(
    process: Cli, folder: Path
) -> None:
    """The process ends with the run, though a sync action that timed out still sleeps."""
    (folder / "stuck.py").write_text(STUCK, "utf-8")

    outcome = process("run", "stuck.py", "--quiet")

    assert outcome.code == 0


SLOPPY = """\
import time
from handrail import Steps, step, workflow

@workflow
def sloppy() -> Steps[None]:
    step("dropped").call(int){comment}
    yield from step("real").call(int)
    time.time()
"""


@pytest.mark.parametrize("comment", ["", "  # handrail: ignore[HR101]"])
def test_a_target_is_looked_at_before_it_is_run(cli: Cli, folder: Path, comment: str) -> None:
    """A mistake refuses the run, a warning is told; a comment lets it pass."""
    (folder / "sloppy.py").write_text(SLOPPY.format(comment=comment))
    outcome = cli("run", "sloppy.py")
    assert "warning: " in outcome.err
    assert "sloppy.py:8:" in outcome.err
    if comment:
        assert outcome.code == 0
    else:
        assert outcome.code == 2
        assert "sloppy.py:6:5: HR101" in outcome.err
        assert "# handrail: ignore" in outcome.err
        assert not (folder / ".handrail" / "runs.db").exists()
