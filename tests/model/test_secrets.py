from __future__ import annotations

import html
import json
import re
import shlex
import subprocess
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from handrail.codec.codec import Codec
from handrail.secrets.masking import Mask
from handrail.secrets.sealing import seal_text, unseal_text, variables_in
from handrail.secrets.spellings import SOON, SPELLINGS, TOGETHER, Needles
from handrail.secrets.values import Secrets, mask_text, secret_values

# -- which values are secret -----------------------------------------------------------------------


def test_variables_with_a_word_in_their_name_are_secret() -> None:
    """KEY, TOKEN, SECRET and PASSWORD in a name, in either case, make its value a secret."""
    environ = {
        "OPENAI_API_KEY": "value-1",
        "gh_token": "value-2",
        "MY_SECRET_THING": "value-3",
        "PGPASSWORD": "value-4",
        "HOME": "/home/ann",
        "PATH": "/usr/bin",
    }
    secret = ["MY_SECRET_THING", "OPENAI_API_KEY", "PGPASSWORD", "gh_token"]
    assert secret == list(secret_values(Secrets(), environ))
    assert environ == environ | secret_values(Secrets(), environ)


def test_variables_that_are_named_are_secret() -> None:
    """A variable that is named is secret whatever its name contains, and other words are taken."""
    environ = {"DATABASE_URL": "postgres://u:p@h", "API_KEY": "value-1", "CREDENTIAL": "value-2"}
    secrets = Secrets(names=("DATABASE_URL", "ABSENT"), words=("credential",))
    assert {"CREDENTIAL", "DATABASE_URL"} == set(secret_values(secrets, environ))
    assert secret_values(Secrets(words=("",)), environ) == {}


def test_short_values_are_no_secrets() -> None:
    """A value of less than 6 characters is in too many texts by chance."""
    environ = {"A_KEY": "12345", "B_KEY": "123456", "C_KEY": ""}
    assert secret_values(Secrets(names=("A_KEY",)), environ) == {"B_KEY": "123456"}


def test_the_values_are_not_shown() -> None:
    """The repr of secret values has their names only."""
    assert repr(secret_values(Secrets(), {"A_KEY": "value-1"})) == "<values of A_KEY>"
    assert repr(secret_values(Secrets(), {})) == "<values of no variables>"


# -- what people see -------------------------------------------------------------------------------

VALUES = {"API_KEY": "hunter2!", "LONG_KEY": "hunter2!hunter3!", "DB_PASSWORD": 'p"a\\s\ns-é'}

TOKENS = {
    "sk-" + "a1B2c3" * 6: "sk-a***B2c3",
    "sk-proj-" + "a1_B2-c3" * 6: "sk-p***2-c3",
    "sk-ant-api03-" + "a1_B2-c3" * 6: "sk-a***2-c3",
    "ghp_" + "a1B2" * 9: "ghp_***a1B2",
    "gho_" + "a1B2" * 9: "gho_***a1B2",
    "ghs_" + "a1B2" * 9: "ghs_***a1B2",
    "github_pat_" + "a1B2_" * 16: "gith***1B2_",
    "glpat-" + "a1B2-" * 4: "glpa***1B2-",
    "xoxb-123456789012-abcdefABCDEF": "xoxb***CDEF",
    "AKIAIOSFODNN7EXAMPLE": "AKIA***MPLE",
    "ASIAIOSFODNN7EXAMPLE": "ASIA***MPLE",
    "AIza" + "a1B2-" * 7: "AIza***1B2-",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVP-mB92K27": "eyJh***2K27",
    "xapp-1-" + "A1B2" * 8: "xapp***A1B2",
    "GOCSPX-" + "a1B2" * 7: "GOCS***a1B2",
    "ya29." + "a1B2" * 10: "ya29***a1B2",
    "sk_live_" + "a1B2" * 6: "sk_l***a1B2",
    "rk_test_" + "a1B2" * 6: "rk_t***a1B2",
    "whsec_" + "a1B2" * 8: "whse***a1B2",
    "npm_" + "a1B2" * 9: "npm_***a1B2",
    "pypi-AgEIcHlwaS5vcmc" + "a1B2" * 12: "pypi***a1B2",
    "hf_" + "a1B2" * 9: "hf_a***a1B2",
    f"SG.{'a1B2-_' * 3}a1B2.{'a1B2' * 10}a1B": "SG.a***2a1B",
    "dop_v1_" + "a1b2" * 16: "dop_***a1b2",
    "dckr_pat_" + "a1B2" * 6: "dckr***a1B2",
}
NO_TOKENS = [
    "task-1-of-the-very-long-list-of-2-tasks",
    "disk-usage-of-the-2-machines-is-high",
    "sk-some-kebab-case-without-any-number",
    "sk-short1",
    "the ghp_ prefix",
    "xoxb-and-nothing-more",
    "AKIA is four letters",
    "AKIAIOSFODNN7EXAMPLEandmore",
    "BAKIAIOSFODNN7EXAMPLE",
    "eyJub3QiOiJhIn0=",
    "eyJhbGciOiJIUzI1NiJ9.only-one-part",
    "high sky, ask-2, AIza",
]


@pytest.mark.parametrize(("token", "shown"), TOKENS.items())
@pytest.mark.parametrize(
    "around", ["{}", "use {} now", "key={}", '{{"k": "{}"}}', "a\n{}\n", "({})"]
)
def test_a_token_is_cut_to_its_ends(token: str, shown: str, around: str) -> None:
    """A known token keeps its first and last 4 characters, wherever it stands."""
    assert around.format(shown) == mask_text(around.format(token), {})
    assert around.format(shown) == mask_text(mask_text(around.format(token), {}), {})


@pytest.mark.parametrize(
    "piece", [*TOKENS, "sk-", "gh", "xoxb-", "A", "AKIA", "eyJ", "0meyJ", "x", ".eyJ", "-"]
)
def test_no_text_takes_long_to_mask(piece: str) -> None:
    """The time for a text of 300,000 characters is not that of its square, which would be hours."""
    for text in (piece * (300_000 // len(piece)), f"{piece}{'a' * 300_000}"):
        assert len(mask_text(text, VALUES)) <= len(text)


def test_an_unmistakable_token_is_cut_inside_a_word() -> None:
    """A beginning that no word has is found wherever it stands."""
    assert mask_text("token%3Dghp_" + "a1B2" * 9, {}) == "token%3Dghp_***a1B2"


@pytest.mark.parametrize("text", NO_TOKENS)
def test_what_only_looks_like_a_token_stays(text: str) -> None:
    """Ordinary words that begin like a token are left alone."""
    assert text == mask_text(text, {})


def test_values_are_shown_as_their_variables() -> None:
    """A value is replaced by its variable's name, the longer one first, also as JSON writes it."""
    assert mask_text("a hunter2! b hunter2!hunter3!", VALUES) == "a ${API_KEY} b ${LONG_KEY}"
    assert mask_text(f"[{VALUES['DB_PASSWORD']}]", VALUES) == "[${DB_PASSWORD}]"
    line = json.dumps({"p": VALUES["DB_PASSWORD"]}, ensure_ascii=False)
    assert mask_text(line, VALUES) == '{"p": "${DB_PASSWORD}"}'
    assert mask_text("nothing here", VALUES) == "nothing here"
    assert mask_text("12345", {"A_KEY": "12345"}) == "12345"


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_value_is_found_however_it_is_spelled(spelling: str) -> None:
    """In URLs, forms, and JSON of any sort a value is masked, and a record brings it back so."""
    value = VALUES["DB_PASSWORD"]
    spelled = f"a {SPELLINGS[spelling](value)} b"
    assert mask_text(spelled, VALUES) == "a ${DB_PASSWORD} b"
    text = json.dumps(spelled, ensure_ascii=False)
    closed, cut = seal_text(text, VALUES)
    assert SPELLINGS[spelling](value) not in json.loads(closed)["v"]
    assert variables_in(closed) == {"DB_PASSWORD"}
    assert (json.loads(unseal_text(closed, VALUES)), cut) == (spelled, False)


def in_json(text: str) -> str:
    """The text between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def test_the_spellings_are_those_of_the_standard_library() -> None:
    """A secret in a URL, a form or JSON is found as Python's own functions write it."""
    value = VALUES["DB_PASSWORD"] + " 100%+/?&~"
    quoted = shlex.quote(value)[1:-1]
    in_base64 = {
        f"base64{kind}{f' after {shift}' if shift else ''}": encode(bytes(shift) + value.encode())
        for kind, encode in {"": b64encode, "url": urlsafe_b64encode}.items()
        for shift in range(3)
    }
    spelled = {name: spell(value) for name, spell in SPELLINGS.items()}
    assert spelled["json in json"] == in_json(in_json(value))
    assert spelled["ascii in json"] == json.dumps(json.dumps(value)[1:-1])[1:-1]
    assert spelled["repr in json"] == in_json(repr(value)[1:-1])
    assert spelled["shell in repr"] == repr(f" {quoted}")[2:-1]
    spelled = {name: text for name, text in spelled.items() if " in " not in name}
    for name, data in in_base64.items():
        assert spelled.pop(name) in data.decode()
        assert len(spelled.get(name, data)) >= len(data) - 6
    assert spelled == {
        "": value,
        "json": in_json(value),
        "ascii": json.dumps(value)[1:-1],
        "doubled": value.replace("'", "''"),
        "html": html.escape(value),
        "html by number": html.escape(value).replace("&quot;", "&#34;").replace("&#x27;", "&#39;"),
        "xml": html.escape(value, quote=False),
        "url": quote(value, safe=""),
        "path": quote(value),
        "form": quote_plus(value),
        "hex": value.encode().hex(),
        "HEX": value.encode().hex().upper(),
        "repr": repr(value)[1:-1],
        "repr quoted": repr(value)[1:-1].replace("'", "\\'"),
        "ascii repr": ascii(value)[1:-1],
        "bytes": repr(value.encode())[2:-1],
        "bytes quoted": repr(value.encode())[2:-1].replace("'", "\\'"),
        "shell": quoted,
        "shell by backslash": value.replace("'", "'\\''"),
        "backslashed": spelled["backslashed"],
    }
    shell = ["sh", "-c", f"printf %s {spelled['backslashed'].replace(chr(92) + chr(10), 'N')}"]
    printed = subprocess.run(shell, check=True, capture_output=True, text=True).stdout
    assert printed == value.replace("\n", "N")


def in_lines(width: int, before: int, text: str) -> str:
    """A stream of base64 that begins with so many bytes of something else."""
    stream = b64encode(b"x" * before + text.encode()).decode()
    return "\n".join(stream[at : at + width] for at in range(0, len(stream), width))


PRINTED: dict[str, Callable[[str], str]] = {
    "plain": str,
    "stripped": str.strip,
    "repr": repr,
    "repr of a tuple": lambda text: repr((text, "it's")),
    "repr of quotes": lambda text: repr(f'{text} "it\'s"'),
    "repr of bytes": lambda text: repr(text.encode()),
    "shlex": shlex.quote,
    "repr of argv": lambda text: repr(["sh", "-c", shlex.quote(text)]),
    "json": json.dumps,
    "json of json": lambda text: json.dumps(json.dumps({"k": text})),
    "json of repr": lambda text: json.dumps(repr(text)),
    "shlex of shlex": lambda text: shlex.quote(shlex.quote(text)),
    "html": html.escape,
    "html by number": lambda text: (
        html.escape(text, quote=False).replace("'", "&#39;").replace('"', "&#34;")
    ),
    "xml": lambda text: html.escape(text, quote=False),
    "sql": lambda text: "'" + text.replace("'", "''") + "'",
    "url in url": lambda text: quote(quote(text, safe=""), safe=""),
    "url": lambda text: quote(text, safe=""),
    "form": quote_plus,
    "base64": lambda text: b64encode(text.encode()).decode(),
    "base64 at 1": lambda text: b64encode(f"a{text}bc".encode()).decode(),
    "base64 at 2": lambda text: b64encode(f"ab{text}c".encode()).decode(),
    "basic": lambda text: "Basic " + b64encode(f"user:{text}".encode()).decode(),
    "base64 for URLs": lambda text: urlsafe_b64encode(text.encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "hex of xxd": lambda text: text.encode().hex().upper(),
    **{
        f"base64 by {width} after {before}": partial(in_lines, width, before)
        for width in (64, 76)
        for before in range(3)
    },
}
secret_texts = st.text(
    st.sampled_from("aB3$'\"\\/+=%& ~:@-\u00e9\u20ac\U0001f40e") | st.characters(codec="utf-8"),
    min_size=14,
    max_size=90,
)
values_of_all_kinds = (
    secret_texts
    | secret_texts.map("{}\n".format)
    | st.lists(secret_texts, min_size=2, max_size=4).map("\n".join)
)


@given(values_of_all_kinds, st.sampled_from(sorted(PRINTED)), st.lists(st.integers(0, 400)))
def test_a_secret_is_masked_however_it_is_printed(value: str, way: str, cuts: list[int]) -> None:
    """No way to print a value, in one piece or in chunks, leaves it readable, and a record that
    was sealed gives back what was printed.
    """
    assume(len(value.strip()) >= 8)
    values = secret_values(Secrets(names=("IT",), words=()), {"IT": value})
    text = f"it is {PRINTED[way](value)}; so."
    shown = mask_text(text, values)
    bare = "".join(re.sub(r"\$\{IT\}", "", shown).split())
    before = "".join(text.split())
    assert "${IT}" in shown
    assert len(bare) < len(before) - 3 * len(value.strip()) // 4 + 4
    ends = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    mask, rest, context, bits = Mask(values), "", "", ""
    for start, end in pairwise(ends):
        said, rest, context = mask.split(rest + text[start:end], context)
        bits += said
    assert bits + mask.after(context, rest) == shown
    sealed, cut = seal_text(json.dumps(text), values)
    assert (json.loads(unseal_text(sealed, values)), cut) == (text, False)


KEY_BLOCK = "-----BEGIN RSA PRIVATE KEY-----\n{}\nab12==\n-----END RSA PRIVATE KEY-----\n".format(
    "\n".join(
        "MIIEpAIBAAKCAQEA0Z3VS5JJcds3xfn/ygWyF8PbnGy0AHB7MbzYLdZ7ZvVy7F7V"[n:] for n in range(6)
    )
)
PASSWORD_URL = "postgres://me:hunter22hunter@db:5432/shop"


@pytest.mark.parametrize(
    "value", [KEY_BLOCK, KEY_BLOCK.replace("\n", "\\n"), "two words\nof 12 letters"]
)
def test_each_long_line_of_a_value_is_a_secret(value: str) -> None:
    """A program that prints one line of a key prints the variable's name."""
    for line in value.replace("\\n", "\n").splitlines():
        if len(line) >= 12 and "-----" not in line:
            assert mask_text(f"> {line} <", {"TLS_KEY": value}) == "> ${TLS_KEY} <"


def test_the_password_of_a_url_is_a_secret() -> None:
    """The password alone of a variable's URL is masked, decoded too; not if it is the user."""
    values = {"DATABASE_URL": "postgres://me:hunter%2122hunter@db"}
    assert (
        mask_text("hunter%2122hunter hunter!22hunter", values) == "${DATABASE_URL} ${DATABASE_URL}"
    )
    assert mask_text("postgres", {"DATABASE_URL": "postgres://postgres:postgres@db"}) == "postgres"


@pytest.mark.parametrize("name", [
    *("DB_PASS", "SMTP_PASSWD", "MYSQL_PWD", "DATABASE_URL", "SENTRY_DSN", "GH_PAT"),
    *("gcp_credentials", "SSH_PASSPHRASE", "AZURE_CONNECTION_STRING", "NPM_CREDS"),
])  # fmt: skip
def test_common_names_of_secrets_are_known(name: str) -> None:
    """Variables that people keep secrets in are secret without being named."""
    others = {"PWD": "/home/ann", "OLDPWD": "/home/bob", "COMPAT": "value-1", "MY_PATH": "value-2"}
    assert list(secret_values(Secrets(), {name: "value-3", **others})) == [name]


def test_a_variable_with_a_token_or_a_password_in_it_is_secret() -> None:
    """Its name does not matter then, and a record gets its value back."""
    environ = {"PROXY": PASSWORD_URL, "CI_JOB": "ghp_" + "a1B2" * 9, "HOME": "https://a.b:80/c@d"}
    assert set(secret_values(Secrets(), environ)) == {"PROXY", "CI_JOB"}
    assert secret_values(Secrets(words=()), environ) == {}


def test_a_private_key_and_a_password_in_a_url_are_masked_without_a_variable() -> None:
    """Of a key its first line is left, of a URL all but the password, also in JSON."""
    begin = "-----BEGIN RSA PRIVATE KEY-----"
    assert mask_text(f"a {KEY_BLOCK}b", {}) == f"a {begin}***\nb"
    assert mask_text(json.dumps(KEY_BLOCK), {}) == f'"{begin}***\\n"'
    assert mask_text(KEY_BLOCK[:200], {}) == f"{begin}***"
    assert mask_text(f"the line {begin} begins it", {}) == f"the line {begin} begins it"
    assert mask_text(f"({PASSWORD_URL})", {}) == "(postgres://me:***@db:5432/shop)"
    for text in ("http://a:80/b@c", "x://u:${PW}@h", "x://u:<password>@h", "x://u:%s@h"):
        assert mask_text(text, {}) == text


def test_of_two_variables_with_one_value_the_first_is_shown() -> None:
    """One value of two variables is shown as the first of them."""
    assert mask_text("value-1", {"A_KEY": "value-1", "B_KEY": "value-1"}) == "${A_KEY}"


pieces = st.lists(st.text(max_size=4) | st.sampled_from([*VALUES.values(), *TOKENS]), max_size=6)


@given(pieces.map("".join))
def test_masking_twice_is_masking_once(text: str) -> None:
    """What was masked has no secret in it, and is not masked again."""
    once = mask_text(text, VALUES)
    assert not any(value in once for value in VALUES.values())
    assert once == mask_text(once, VALUES)


@given(st.text(min_size=6), st.text(max_size=20))
def test_any_text_can_be_a_secret(secret: str, around: str) -> None:
    """No value is taken for a pattern."""
    assume(secret not in f"{around}${{A_KEY}}{around}")
    assume(mask_text(around + secret + around, {}) == around + secret + around)
    shown = mask_text(around + secret + around, {"A_KEY": secret})
    assert "${A_KEY}" in shown


# -- JSON without them -----------------------------------------------------------------------------

strings = pieces.map(" ".join)
trees = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False) | strings | st.tuples(strings)
    | st.binary().map(lambda data: data + b"hunter2!"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3),
    max_leaves=10,
)  # fmt: skip


@given(trees)
def test_a_sealed_text_is_unsealed_to_the_same(tree: Any) -> None:
    """Taking secrets out of JSON text and putting them back gives the same text."""
    text = Codec().dump(tree)
    known = VALUES | {f"T{n}_KEY": token for n, token in enumerate(TOKENS)}
    closed, cut = seal_text(text, known)
    assert (text, False) == (unseal_text(closed, known), cut)
    assert variables_in(closed) <= set(known)
    assert (closed == text) == (not variables_in(closed))
    for value in known.values():
        assert value not in str(json.loads(closed))
    assert (closed, False) == seal_text(closed, known)


@given(trees)
def test_a_sealed_text_has_no_tokens(tree: Any) -> None:
    """Tokens that are no known values are cut, in any string, and sealing says so."""
    text = Codec().dump(tree)
    closed, cut = seal_text(text, None)
    assert not any(token in closed for token in TOKENS)
    assert (closed != text) == cut
    assert (closed, False) == seal_text(closed, None)


def test_text_without_secrets_is_left_as_it_is() -> None:
    """What needs no sealing is returned itself, not written anew."""
    text = '{ "a" : "task-1 is high up in the sky, and so on" }'
    assert seal_text(text, VALUES) == (text, False)
    assert unseal_text(text, VALUES) == text


@given(
    st.text(max_size=20),
    st.sampled_from(["", "sk-", "ghs_", "AKIA", "x.eyJ", "hunter22", "h\u00fcnter22", "\ud800"]),
    st.text(max_size=20),
    st.sampled_from([0, TOGETHER - 6, 2 * TOGETHER]),
)
def test_the_finder_in_c_finds_what_python_finds(
    before: str, needle: str, after: str, others: int
) -> None:
    """Which road is taken changes nothing: neither what is looked for, nor where it stands, nor
    how many are looked for beside it.
    """
    more = [f"other {number:04} than those" for number in range(others)]
    needles = Needles([*more, "sk-", "ghs_", "AKIA", ".eyJ", "hunter22", "h\u00fcnter22"])
    text = before + needle + after
    at_first = needles.may_occur_in(text)
    assert needles.may_occur_in(" " * SOON) is False
    assert needles.may_occur_in(text) == at_first
    assert needles.may_occur_in(" " * SOON + text + " " * SOON) == at_first
    if "\ud800" not in text:
        assert needles.may_occur_in(text.encode("utf-8", "surrogateescape")) == at_first
