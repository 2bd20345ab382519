"""Compares the page docs/reference/agents.md with the code, in the names of its blocks."""

import dataclasses
import inspect
import re
from pathlib import Path

import attrs

import handrail
from handrail.model.agent_options import OPTION_NAMES, PERMISSIONS, WATCHDOGS

PAGE = PAGE_FILE.read_text("utf-8")


def section(name):
    """The text under a heading."""
    return re.split(r"^## ", PAGE.split(f"\n## {name}\n", 1)[1], flags=re.MULTILINE)[0]


def rows(name):
    """The cells of the rows of the first table under a heading, without its head."""
    table = re.search(r"(^\|.*\n)+", section(name), re.MULTILINE)[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table]


def named(name):
    """The names in the first column of that table."""
    return [word for first, *_ in rows(name) for word in re.findall(r"`(\w+)`", first)]


def defaults(name, *parameters):
    """The names in the first column with the defaults in the second."""
    return {
        re.search(r"`(\w+)`", first)[1]: default.strip("`") for first, default, *_ in rows(name)
    }


def signature(cls):
    return inspect.signature(cls.__init__).parameters


def value(text):
    return eval(
        text,
        vars(handrail).copy()
        | {name: getattr(handrail, name) for name in ("AgentOptions", "Ladder", "Backoff")},
    )


parameters = signature(handrail.Agent)
table = defaults("`Agent`")
assert list(table) == [name for name in parameters if name not in ("self", "name", "prompt")]
assert {name: value(text) for name, text in table.items()} == {
    name: parameters[name].default for name in table
}
files = handrail.Files(["a"])
assert f"max_bytes={files.max_bytes:_}, max_file_bytes={files.max_file_bytes:_}" in PAGE

from handrail.agents.transport.turn import IDLE_S, START_S, TOOL_S

assert set(named("`AgentOptions`")) == set(OPTION_NAMES)
assert f"at first ({START_S:g}), later ({IDLE_S:g}), while a tool is running ({TOOL_S:g})" in PAGE
assert all(f'"{level}"' in section("`AgentOptions`") for level in PERMISSIONS)

from handrail.agents.routes import backend_names, make_backend
from handrail.ports.agent import capabilities_of


def capabilities(name):
    made = {
        "acp": lambda: handrail.AcpBackend(["x"]),
        "command": lambda: handrail.CommandBackend(["x"]),
    }
    return capabilities_of(made.get(name, lambda: make_backend(name))())


def honoured():
    """Each table under the heading: who honours what, by the names in the first column."""
    for table in re.findall(r"((?:^\|.*\n)+)", section("Which backend honours what"), re.MULTILINE):
        rows = [
            [set(re.findall(r"`(\w+)`", cell)) for cell in row.strip("|").split(" | ")] + [row]
            for row in table.splitlines()[2:]
        ]
        yield {
            name: every - who if "| all" in row else who
            for names, who, row in rows
            for name in names
        }


every = {*backend_names(), "acp", "command"}
options, others = honoured()
assert set(options) == set(OPTION_NAMES) and set(others) == {
    field.name for field in dataclasses.fields(handrail.Capabilities) if field.type == "bool"
}
for name in every:
    can = capabilities(name)
    assert "permission" not in can.options or can.permissions == set(PERMISSIONS), name
    for option, who in options.items():
        assert (name in who) == (option in WATCHDOGS or option in can.options), (name, option)
    for field, who in others.items():
        assert (name in who) == getattr(can, field), (name, field)

ladder = handrail.Ladder()
assert {name: value(text) for name, text in defaults("`Ladder`").items()} == attrs.asdict(
    ladder, recurse=False
)
from handrail.model.policy import ON_CAP

assert all(f'"{one}"' in section("`Ladder`") for one in ON_CAP)

from handrail.model.policy import ON_BREACH

fields = {field.name: field.default for field in attrs.fields(handrail.Budget)}
assert {name: value(text) for name, text in defaults("`Budget`").items()} == fields
assert all(f'"{one}"' in section("`Budget`") for one in ON_BREACH)

parameters = [name for name in signature(handrail.AgentError) if name != "self"]
assert set(named("`AgentError`")) == set(parameters)

for name in ("AgentTurn", "AgentReply", "Capabilities", "Probe"):
    wanted = {field.name for field in dataclasses.fields(getattr(handrail, name))}
    assert set(named(f"`{name}`")) == wanted, (name, set(named(f"`{name}`")) ^ wanted)
