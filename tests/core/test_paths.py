"""The grammar of names, and the encoding of keys and folders."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handrail.errors import DefinitionError
from handrail.model.paths import attempt_base, check_name, decode_key, encode_key, join, on_disk

# Lone surrogates included: a file name that is no UTF-8 comes as one.
ANY_TEXT = st.text(st.characters(exclude_categories=()))
NEAR_MISSES = st.text(st.sampled_from("ab ./~%0123٣²é\t\n\x00\xa0-_"), max_size=8)
TEXT = ANY_TEXT | NEAR_MISSES
KEYS = TEXT.filter(bool)
MAX_FOLDER = 80 + 1 + 12  # what is kept, a dash, a hash
GRAMMAR = re.compile(
    r"""
    (?! \.{1,2} \Z )            # not '.' or '..'
    (?! [^/]* ~ \d+ \Z )        # not ending in '~' and digits
    (?! \  ) [^/]{1,120} (?<! \  )
    """,
    re.VERBOSE,
)


def accepted(name: object) -> bool:
    """Whether a name is one."""
    try:
        return check_name(name) is not None
    except DefinitionError:
        return False


def without_surrogates(text: str) -> str:
    """What percent-encoding decodes to, with surrogates put back together."""
    return unquote(text, errors="surrogatepass")


# -- names -----------------------------------------------------------------------------------------


@given(TEXT)
@example(".hidden")
@example("a~b")
@example("a~")
@example("a ")
@example(" a")
@example("~1")
@example("a~1b")
@example("x" * 120)
@example("x" * 121)
@example("")
@example(" ")
def test_a_name_is_what_the_grammar_says(name: str) -> None:
    """Exactly the printable texts of the grammar are names."""
    assert accepted(name) == bool(name.isprintable() and GRAMMAR.fullmatch(name))


@given(TEXT.filter(accepted))
def test_a_name_stays_as_it_is(name: str) -> None:
    """A name is given back unchanged, and so it is a single part of a path."""
    assert check_name(name) == name
    assert join("parent", name).split("/") == ["parent", name]


@pytest.mark.parametrize(
    "name", ["plan", "merge?", "review 2", "größe", "修正", ".env", "a~b", "x."]
)
def test_what_an_author_would_write_is_a_name(name: str) -> None:
    """Marks, inner blanks and any script are fine in a name."""
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (None, "must be a str, got NoneType"),
        (7, "must be a str, got int"),
        ("", "it is blank"),
        ("  ", "it is blank"),
        ("a/b", "'/' separates the parts of a path"),
        (" a", "begins or ends with a blank"),
        ("a\n", "begins or ends with a blank"),
        ("a\tb", "cannot be printed"),
        (".", "mean folders"),
        ("..", "mean folders"),
        ("fix~2", "mark later attempts"),
        ("x" * 121, "it has 121 characters, at most 120"),
        ("fix this " * 1_000 + "now", "it has 9003 characters, at most 120"),
    ],
)
def test_what_is_no_name_is_told_which_rule_it_breaks(name: object, why: str) -> None:
    """The error has the value (or its beginning), what it was to name, and the rule."""
    rule = f"(?s)is no name for a signal: .*{re.escape(why)}"
    with pytest.raises(DefinitionError, match=rule) as caught:
        check_name(name, "signal")
    assert len(str(caught.value)) < 400


def test_a_kind_of_str_becomes_a_str() -> None:
    """A name of a class derived from str is recorded as plain text."""

    class Fancy(str):
        __slots__ = ()

    assert type(check_name(Fancy("plan"))) is str


# -- keys ------------------------------------------------------------------------------------------


@given(KEYS)
@example(".")
@example("..")
@example("%2E")
@example("%")
@example("\ud800")
def test_a_key_can_be_decoded(key: str) -> None:
    """Percent-decoding gives the key's text back, so distinct texts have distinct encodings."""
    assert without_surrogates(encode_key(key)) == key


@given(KEYS)
@example("\ud800")
def test_a_key_is_one_part_of_a_path(key: str) -> None:
    """No key adds a level, is a folder's own name, or has characters that break a line."""
    encoded = encode_key(key)
    assert encoded not in {"", ".", ".."}
    assert not re.search(r"[/\x00-\x1f\x7f-\x9f]", encoded)
    assert encoded.encode()


@given(st.text(st.characters(exclude_characters="/%", exclude_categories=("Cc", "Cs")), min_size=1))
def test_a_readable_key_stays_readable(key: str) -> None:
    """A key without a character that needs it is not changed, whole dots aside."""
    assert encode_key(key) == (key.replace(".", "%2E") if key in {".", ".."} else key)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (3, "3"),
        (True, "True"),
        (("a", 1), "('a', 1)"),
        ("src/app.py", "src%2Fapp.py"),
        ("50%", "50%25"),
        ("a\nb", "a%0Ab"),
        ("..", "%2E%2E"),
        ("...", "..."),
    ],
)
def test_any_value_has_a_key(key: object, expected: str) -> None:
    """A key is the value's text with what would break a path percent-encoded."""
    assert encode_key(key) == expected


def test_an_empty_key_is_refused() -> None:
    """There is no part of a path without a character."""
    with pytest.raises(ValueError, match="a key must not be empty"):
        encode_key("")


@pytest.mark.parametrize("key", [object(), (object(),), lambda: 1], ids=lambda _: "")
def test_a_key_whose_text_is_an_address_is_refused(key: object) -> None:
    """No resume would find its steps again."""
    with pytest.raises(ValueError, match="the same text in each run"):
        encode_key(key)


# -- paths -----------------------------------------------------------------------------------------


def test_the_first_attempt_has_the_bare_path() -> None:
    """Later attempts of a composite keep their children apart from those of the first."""
    assert [attempt_base("a/b", attempt) for attempt in (1, 2, 13)] == ["a/b", "a/b~2", "a/b~13"]


# -- folders ---------------------------------------------------------------------------------------


@given(KEYS)
@example("é" * 60)
@example("x" * 200)
def test_a_folder_is_safe_everywhere(part: str) -> None:
    """A folder's name has plain characters only, is no special one, and is not too long."""
    folder = on_disk(part)
    assert re.fullmatch(r"[A-Za-z0-9._%-]+", folder)
    assert folder not in {".", ".."}
    assert len(folder) <= MAX_FOLDER


@given(KEYS, KEYS)
@example("x" * 100, "x" * 101)
@example(".", "%2E")
def test_distinct_parts_have_distinct_folders(one: str, other: str) -> None:
    """Two parts share a folder only if they are the same, cut or not."""
    assert (on_disk(one) == on_disk(other)) == (one == other)


@given(st.text(st.characters(max_codepoint=127), min_size=81, max_size=120))
def test_a_long_part_cannot_pass_for_the_folder_of_another(part: str) -> None:
    """A part that is spelt like the cut folder of another has a folder of its own."""
    assert on_disk(on_disk(part)) != on_disk(part)


@pytest.mark.parametrize("text", ["src/app.py", "a%2Fb", "naïve/日本", "plain", "..", "100 %"])
def test_a_key_is_shown_as_it_was_given(text: str) -> None:
    """The encoding is for paths; people read the key."""
    assert decode_key(encode_key(text)) == text
