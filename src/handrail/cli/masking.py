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


def shown(text: str) -> str:
    """The text as it may be printed."""
    return mask().text(text)


def shown_value(value: Any) -> Any:
    """The value as it may be printed, of the same type as far as that can be."""
    return mask().value(value)


def shown_data(data: Json) -> Json:
    """JSON data of what is masked already, without what the texts of objects in it say."""
    return mask().plain(data)
