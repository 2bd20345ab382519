"""What the command prints of a run, without the secrets of this process's environment.

A run's events come masked. Here are the rest: results, values, errors, questions.
"""

from __future__ import annotations

import os
from typing import Any

from handrail.secrets.masking import Mask
from handrail.secrets.values import Secrets, secret_values
from handrail.typed.jsonsafe import Json


def mask() -> Mask:
    """The mask of the secrets that there are now."""
    return Mask(secret_values(Secrets(), os.environ))


def mask_text(text: str) -> str:
    """The text without secrets, as it may be printed."""
    return mask().text(text)


def mask_value(value: Any) -> Any:
    """The value without secrets, of the same type as far as that can be."""
    return mask().value(value)


def mask_data(data: Json) -> Json:
    """The JSON data of a masked value, without secrets in the texts of objects in it."""
    return mask().plain(data)
