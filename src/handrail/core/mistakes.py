"""Mistakes of the author that end a run, each with the author's line and a hint that fits.

Names and keys must not contain a secret's value: the journal has them unmasked, and so do paths
wherever they are shown.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Mapping
from typing import Any, TypeAlias

from handrail.errors import DefinitionError, NotAStep
from handrail.model.paths import encode_key
from handrail.shortening import shortened

_SHOWN_CHARS = 80
_OF_A_BODY = "a body must return a step or yield steps"


def no_body(got: Any, where: str, path: str) -> NotAStep:
    """The mistake of a function that returns neither a step nor a generator."""
    mistake = not_a_step(got, f"{where} (the body of {path!r})")
    return NotAStep(mistake.got, mistake.where, mistake.hint, _OF_A_BODY)


def not_a_step(got: Any, where: str) -> NotAStep:
    """The mistake of yielding anything but a step, with a hint that fits what was yielded."""
    if type(got).__name__ == "StepName":
        hint = f"Did you forget a verb after step({got.name!r}): .call(), .agent(), .validate()?"
        return NotAStep(f"step({got.name!r}) without a verb", where, hint)
    if got is None:
        hint = (
            'Did you forget a verb, or a value after yield? Write: yield from step("name").call(f).'
        )
        return NotAStep("None", where, hint)
    name = getattr(got, "__name__", got)
    if isinstance(got, Generator):
        hint = "Write `yield from helper()`, not `yield helper()`."
        return NotAStep(f"the generator {name!r}", where, hint)
    if isinstance(got, Coroutine):
        got.close()
        hint = (
            'A workflow and its bodies are no async functions. Await in a step: step("name")'
            f".call({name}, ...)."
        )
        return NotAStep(f"the coroutine {name!r}", where, hint)
    if hasattr(got, "definition"):
        hint = f'Write step("name").subworkflow({got.definition.name}, {{...}}).'
        return NotAStep(f"the workflow {got.definition.name!r}", where, hint)
    hint = 'Wrap it: step("name").call(...), .command(...), .agent(...).'
    return NotAStep(shortened(repr(got), _SHOWN_CHARS), where, hint)


SecretNames: TypeAlias = tuple[tuple[str, str], ...]
"""The texts that no name may contain, each with the variable whose value it is."""

_LEAST = 12
"""Shorter values are not looked for: they may be part of a name by chance."""


def secret_names(secrets: Mapping[str, str] | None) -> SecretNames:
    """The values that no name may contain, as they are and as keys encode them."""
    return tuple(
        (form, variable)
        for variable, value in (secrets or {}).items()
        if len(value) >= _LEAST
        for form in {value, encode_key(value)}
    )


def mistake_of_secret_name(secrets: SecretNames, path: str, where: str) -> DefinitionError | None:
    """The mistake of a path whose last name contains a secret's value; None if it does not."""
    name = path.rpartition("/")[2]
    variable = next((known for value, known in secrets if value in name), None)
    if variable is None:
        return None
    return DefinitionError(
        f"{where}: a step's name, or a key of for_each, has the value of {variable} in it, and "
        f"names are in the journal as they are. Take another name, or give for_each a key=."
    )
