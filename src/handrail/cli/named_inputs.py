"""Inputs typed as options: ``handrail run TARGET --version 1.1`` is ``--input version=1.1``.

One rule decides what a name after TARGET means: an input of the workflow comes before an option of
the command. Options may stand before TARGET, where no input is looked for. ``--input`` and
``--inputs``, by which all inputs can be given, are always the command's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from inspect import Parameter
from itertools import islice
from pathlib import Path
from typing import Any

from handrail.cli.channels import data_channel, tell
from handrail.cli.exits import Refused

_NEVER_INPUTS = frozenset({"--input", "--inputs"})
_HELP = frozenset({"--help", "-h"})


def with_named_inputs(words: Sequence[str], command: Any) -> list[str]:
    """The words of ``run``, with each input that was typed as an option as ``--input NAME=VALUE``.

    ``command``: the application of ``run``, which has the options. The workflow is imported if an
    option stands after TARGET.

    Raises:
        Refused: the workflow cannot be imported, or an input has no value.
    """
    known = command.assemble_argument_collection()
    values = {name: one.token_count()[0] for one in known for name in one.names}
    at = _target_at(words, values)
    after = words[at + 1 :]
    if not any(word.startswith("--") and word != "--" for word in after):
        return list(words)
    return [*words[: at + 1], *_renamed(after, _inputs_of(words[at], after), values)]


def _target_at(words: Sequence[str], values: Mapping[str, int]) -> int:
    """Where TARGET stands: the first word that is no option and no option's value."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 1 + (0 if "=" in words[at] else values.get(words[at], 0))
    return at


def _inputs_of(target: str, typed: Sequence[str]) -> tuple[str, frozenset[str]]:
    """The name of the workflow that TARGET names, and those of its inputs."""
    from handrail.cli.target import load_with_executor, split

    try:
        with data_channel():  # a module may print while it is imported
            definition = load_with_executor(target)[0].definition
    except Refused:
        if _HELP.isdisjoint(typed) and Path(split(target)[0]).is_file():
            raise
        return "", frozenset()  # what is wrong with the words is said first
    named = (
        parameter.name
        for parameter in definition.parameters
        if parameter.kind is not Parameter.VAR_KEYWORD
    )
    return definition.name, frozenset(named)


def _renamed(
    words: Sequence[str], inputs: tuple[str, frozenset[str]], values: Mapping[str, int]
) -> Iterator[str]:
    workflow, names = inputs
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if word == "--":
            yield from (word, *rest)
        elif not option.startswith("--") or option in _NEVER_INPUTS or name not in names:
            yield word
            if not equals:  # the value of an option is none itself
                yield from islice(rest, values.get(option, 0))
        else:
            given = value if equals else next(rest, None)
            if given is None:
                hint = f"Write {option} VALUE. The command's options go before TARGET."
                raise Refused(
                    option, f"is an input of workflow {workflow!r} and has no value", hint
                )
            if option in values:
                option_of = f"To give handrail run its option {option}, write that before TARGET"
                tell(f"{option} is taken as the input of workflow {workflow!r}. {option_of}")
            yield from ("--input", f"{name}={given}")
