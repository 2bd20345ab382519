"""The order of steps over drives: the last drive's for what began in it, else as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from handrail.core.places import Places

NAMES = "abcdefgh"
DRIVES = st.lists(st.lists(st.sampled_from(NAMES), unique=True), max_size=5)


def in_order(places: Places, names: str = NAMES) -> str:
    """The names by their places."""
    return "".join(sorted(names, key=places.of))


@given(first=st.permutations(NAMES[:5]), drives=DRIVES)
def test_what_a_drive_begins_stands_in_its_order_and_the_rest_as_it_did(
    first: list[str], drives: list[list[str]]
) -> None:
    """Over any number of drives, of any steps, known or new."""
    places, known = Places(first), "".join(first)
    for drive in drives:
        places.drive_began()
        for name in drive:
            places.begun(name)
        before, known = known, in_order(places, "".join({*known, *drive}))
        assert [one for one in known if one in drive] == drive
        rest = [one for one in before if one not in drive]
        assert [one for one in known if one not in drive] == rest


def test_a_new_step_stands_behind_the_one_before_it_and_before_what_was_kept() -> None:
    """As a step does that a failure had kept from beginning, with clean-up behind it."""
    places = Places("az")
    places.begun("a")
    places.begun("b")
    places.begun("c")
    assert in_order(places, "abcz") == "abcz"
    places.drive_began()
    places.begun("b")
    places.begun("x")
    assert in_order(places, "abcxz") == "abxcz"


def test_what_never_began_stands_behind_all_that_did() -> None:
    """A question of a step's agent is below the step too, and is no step."""
    places = Places("ab")
    places.begun("c")
    assert in_order(places, "?abc") == "abc?"
