"""Masks the secrets of this process's environment in what the command prints.

A run's events are masked already; this masks its results, values, errors and questions.
"""

from __future__ import annotations

import os
from typing import Any

from handrail.secrets.masking import Mask
from handrail.secrets.values import Secrets, secret_values
from handrail.shortening import without_codes
from handrail.typed.jsonsafe import Json


def mask() -> Mask:
    """The mask of the secrets that are set now."""
    return Mask(secret_values(Secrets(), os.environ))


def mask_text(text: str) -> str:
    """The text without secrets and terminal codes, as it may be printed."""
    return without_codes(mask().text(text).encode(errors="backslashreplace").decode())


def mask_value(value: Any) -> Any:
    """The value without secrets, of the same type where possible."""
    return mask().value(value)


def mask_data(data: Json) -> Json:
    """The JSON data without secrets, also where it has texts of objects that were not masked."""
    return mask().plain(data)
