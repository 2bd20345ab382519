"""Paths as they are from the root of a repository, and who else holds a part of the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.coordination.hub.frames import Refusal
from handrail.coordination.hub.scopes import Scopes, normalized

ROOTS = ("/repo", "/private/repo")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("src/a.py", "src/a.py"),
        ("./src/core/", "src/core"),
        ("src//a.py", "src/a.py"),
        ("src/./a.py", "src/a.py"),
        ("a/../b", "b"),
        ("src/../lib/x.py", "lib/x.py"),
        ("src\\a.py", "src/a.py"),
        (" src ", "src"),
        ("/repo/src/a.py", "src/a.py"),
        ("/private/repo/src", "src"),
        ("src/*.py", "src"),
        ("src/**/test_?.py", "src"),
        ("app/[slug]/page.tsx", "app/[slug]/page.tsx"),
        ("...", "..."),
    ],
)
def test_a_path_is_as_it_is_from_the_root(path: str, expected: str) -> None:
    """Whatever way a path is written, the part of the repository that it means is the same."""
    assert normalized([path], ROOTS) == (expected,)


@pytest.mark.parametrize("path", ["", ".", "./", "/repo", "/repo/", "a/..", "*", "**/x.py"])
def test_the_root_is_all_of_it(path: str) -> None:
    """A path that means the root is the whole repository, whatever else is named."""
    assert normalized(["src", path], ROOTS) == ()


@pytest.mark.parametrize(
    "path", ["..", "../x", "a/../../x", "src/*/../../x", "/etc/passwd", "/repository/x", "C:/x"]
)
def test_a_path_that_leads_out_is_refused(path: str) -> None:
    """A path outside the repository is no part of it."""
    with pytest.raises(Refusal, match=r"leads out|is absolute"):
        normalized([path], ROOTS)


def test_a_path_without_an_end_is_refused() -> None:
    """A path of thousands of folders costs nobody anything."""
    with pytest.raises(Refusal, match="64 folders"):
        normalized(["a/" * 1_000], ROOTS)


PARTS = st.lists(st.sampled_from("ab"), max_size=3).map("/".join)
HELD = st.tuples(
    st.sampled_from(["x", "y", "z"]),  # owner
    st.sampled_from(["", "wt"]),  # worktree
    st.lists(PARTS, max_size=3).map(lambda paths: normalized(paths, ()) if paths else ()),
)


def overlap(one: str, other: str) -> bool:
    """True if one path is the other, or above it: the rule, by its letter."""
    return (
        one == other
        or not one
        or not other
        or f"{one}/".startswith(f"{other}/")
        or f"{other}/".startswith(f"{one}/")
    )


@given(st.lists(HELD, max_size=8), st.data())
def test_the_index_finds_what_looking_at_all_finds(
    held: list[tuple[str, str, tuple[str, ...]]], data: st.DataObject
) -> None:
    """What the index says is what a comparison with each claim says, after any were taken out."""
    scopes = Scopes(folds_case=False)
    for number, (owner, worktree, paths) in enumerate(held):
        scopes.add(str(number), owner, worktree, paths)
    gone = data.draw(st.sets(st.integers(0, max(0, len(held) - 1))))
    for number in gone & set(range(len(held))):
        scopes.remove(str(number), *held[number])
    owner, worktree, paths = data.draw(HELD)
    expected = {
        str(number)
        for number, (its_owner, its_worktree, its_paths) in enumerate(held)
        if number not in gone and its_owner != owner and its_worktree == worktree
        if any(overlap(a, b) for a in paths or ("",) for b in its_paths or ("",))
    }
    assert set(scopes.overlaps(worktree, paths, owner)) == expected


@given(st.lists(HELD, max_size=8))
def test_an_index_of_nothing_has_nothing(
    held: list[tuple[str, str, tuple[str, ...]]],
) -> None:
    """What was entered and taken out leaves no trace."""
    scopes = Scopes(folds_case=False)
    for number, claim in enumerate(held):
        scopes.add(str(number), *claim)
    for number, claim in enumerate(held):
        scopes.remove(str(number), *claim)
    assert scopes._at == {}
    assert scopes._within == {}


@pytest.mark.parametrize(("folds", "expected"), [(True, ["1"]), (False, [])])
def test_case_counts_as_in_the_file_system(folds: bool, expected: list[str]) -> None:
    """Where names are the same in either case, so are claims."""
    scopes = Scopes(folds_case=folds)
    scopes.add("1", "x", "", ("Src/A.py",))
    assert scopes.overlaps("", ("src/a.py",), "y") == expected


def test_a_letter_is_the_same_however_it_is_written() -> None:
    """One code point or two: `é` is `é`."""
    scopes = Scopes(folds_case=False)
    scopes.add("1", "x", "", ("\N{LATIN SMALL LETTER E WITH ACUTE}",))
    assert scopes.overlaps("", ("e\N{COMBINING ACUTE ACCENT}",), "y") == ["1"]
