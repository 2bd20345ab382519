from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from handrail.codec.codec import Codec
from handrail.secrets.needles import SOON, TOGETHER, Needles
from handrail.secrets.sealing import seal_text, unseal_text, variables_in
from handrail.secrets.values import SPELLINGS, Secrets, mask_text, secret_values

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
    assert {name: spell(value) for name, spell in SPELLINGS.items()} == {
        "": value,
        "json": in_json(value),
        "ascii": json.dumps(value)[1:-1],
        "json in json": in_json(in_json(value)),
        "ascii in json": json.dumps(json.dumps(value)[1:-1])[1:-1],
        "url": quote(value, safe=""),
        "path": quote(value),
        "form": quote_plus(value),
    }


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
