"""Keeps values of secrets out of the names of steps and the keys of members.

The record is kept by them: they are in the journal as they are, and in paths wherever they go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from handrail.errors import DefinitionError
from handrail.model.paths import encode_key

SecretNames: TypeAlias = tuple[tuple[str, str], ...]
"""What no name may have in it, each with the variable whose value it is."""

_LEAST = 12
"""A value that is shorter may be a part of a name by chance."""


def secret_names(secrets: Mapping[str, str] | None) -> SecretNames:
    """The values that no name may have, as names and as keys have them."""
    return tuple(
        (form, variable)
        for variable, value in (secrets or {}).items()
        if len(value) >= _LEAST
        for form in {value, encode_key(value)}
    )


def names_a_secret(secrets: SecretNames, path: str, where: str) -> DefinitionError | None:
    """What is wrong with a path whose last part has the value of a secret in it."""
    name = path.rpartition("/")[2]
    variable = next((known for value, known in secrets if value in name), None)
    if variable is None:
        return None
    return DefinitionError(
        f"{where}: a step's name, or a key of for_each, has the value of {variable} in it, and "
        f"names are in the journal as they are. Take another name, or give for_each a key=."
    )
