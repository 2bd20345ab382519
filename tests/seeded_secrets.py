"""Secrets that tests put wherever a run can have one, and the search for them in what it left."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote, quote_plus

SECRETS = {
    "API_KEY": "correct-horse-battery",
    "DEPLOY_TOKEN": 'quoted "and" back\\slashed',
    "MAIL_PASSWORD": "two lines\nof it, Grüße 🐎",
    "DATABASE_SECRET": "postgres://me:hunter22@db/x?y=%20z",
    "PLAINLY": "named-by-the-executor",
}
API_KEY, DEPLOY_TOKEN, MAIL_PASSWORD, DATABASE, PLAIN = SECRETS.values()
TOKEN = "ghp_" + "a1B2" * 9  # of no variable
KNOWN = f"{API_KEY} | {DEPLOY_TOKEN} | {MAIL_PASSWORD} | {DATABASE} | {PLAIN}"
ALL = f"{KNOWN} | {TOKEN}"


def spellings(value: str) -> set[bytes]:
    """The value as it may be found in a file: itself, on a line, in JSON, URLs, or base64."""
    raw = value.encode()
    in_base64 = [b64encode(b"\0" * shift + raw)[(shift * 8 + 5) // 6 : -4] for shift in range(3)]
    in_json = [json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)]
    in_json += [json.dumps(text, ensure_ascii=False)[1:-1] for text in in_json]
    in_urls = [quote(value), quote(value, safe=""), quote_plus(value)]
    on_one_line = " ".join(value.split()).encode()
    return {raw, on_one_line, *in_base64, *(text.encode() for text in (*in_json, *in_urls))}


def none_is_in(name: str, data: bytes) -> None:
    """Assert that there is no secret in what was written."""
    for variable, value in {**SECRETS, "a token": TOKEN}.items():
        for spelling in spellings(value):
            assert spelling not in data, f"{variable} is in {name} as {spelling!r}"


def none_is_below(folder: Path) -> int:
    """Assert that no file has a secret, nor its name; how many bytes there are."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    for path in files:
        none_is_in(str(path), path.read_bytes())
        none_is_in("a file's name", str(path.relative_to(folder)).encode())
    return sum(path.stat().st_size for path in files)
