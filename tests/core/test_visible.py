"""A step sees what came before it, and nothing that depends on who was faster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.core.commands import VisibleResults, common_scope
from handrail.model.results import StepResult


def result_of(path: str) -> StepResult[str]:
    """A result whose output is its path."""
    return StepResult(path.rpartition("/")[2], path, "python", "succeeded", path)


def seen_from(viewer: str, paths: set[str], groups: set[str] | None = None) -> VisibleResults:
    """What a step sees if these have finished; ``groups`` have members side by side."""
    return VisibleResults({path: result_of(path) for path in paths}, groups or set(), viewer)


# -- trees -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """A part of a run's tree: a step, a generator, or a group; by the names of its children."""

    children: Mapping[str, Shape] = field(default_factory=dict)
    group: bool = False


# Names of which one begins with another, and one that stands in every scope.
NAMES = st.sampled_from(["a", "ab", "a-b", "b", "a~2", "same"])
SHAPES = st.recursive(
    st.just(Shape()),
    lambda inner: st.builds(Shape, st.dictionaries(NAMES, inner, max_size=4), st.booleans()),
    max_leaves=12,
)


def walk(shape: Shape, path: str = "") -> list[tuple[str, tuple[Shape, ...]]]:
    """Every path below, with the shapes on the way to it, its own last."""
    found: list[tuple[str, tuple[Shape, ...]]] = []
    stack: list[tuple[str, tuple[Shape, ...]]] = [(path, (shape,))]
    while stack:
        here, way = stack.pop()
        for name, child in way[-1].children.items():
            below = f"{here}/{name}" if here else name
            found.append((below, (*way, child)))
            stack.append((below, (*way, child)))
    return found


@dataclass(frozen=True)
class Scene:
    """A tree and one path of it, from which the others are looked at."""

    ways: dict[str, tuple[Shape, ...]]
    viewer: str

    @property
    def groups(self) -> set[str]:
        """The paths of the groups."""
        return {path for path, way in self.ways.items() if way[-1].group}

    def meet_in(self, path: str) -> Shape:
        """The innermost part of the tree that holds, or is, both the viewer and this path."""
        own, other = self.ways[self.viewer], self.ways[path]
        return [a for a, b in zip(own, other, strict=False) if a is b][-1]

    def beside(self, path: str) -> bool:
        """True if this path and the viewer are in two members of one group."""
        meeting = self.meet_in(path)
        return meeting.group and meeting is not self.ways[self.viewer][-1]


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """A tree whose root is a generator, and a viewer in it."""
    children = draw(st.dictionaries(NAMES, SHAPES, min_size=1, max_size=4))
    ways = dict(walk(distinct(Shape(children))))
    return Scene(ways, draw(st.sampled_from(sorted(ways))))


def distinct(shape: Shape) -> Shape:
    """A copy in which no two parts are the same object."""
    return Shape({name: distinct(child) for name, child in shape.children.items()}, shape.group)


SCENES = scenes()


@given(SCENES)
def test_only_members_beside_the_viewer_are_hidden(scene: Scene) -> None:
    """Every finished step is seen, but for those in another member of a group around the viewer:
    by iteration, length, membership and access, and by an absolute path.
    """
    view = seen_from(scene.viewer, set(scene.ways), scene.groups)
    assert set(view) == {path for path in scene.ways if not scene.beside(path)}
    assert len(view) == len(list(view))
    for path in scene.ways:
        assert (path in view) == (path in set(view)) == (view.get(path) is not None)
        assert view.find(f"/{path}") == view.get(path)
    assert all(view[path].path == path for path in view)


@given(SCENES, st.data())
def test_what_is_seen_does_not_depend_on_who_was_faster(scene: Scene, data: st.DataObject) -> None:
    """Whichever of the concurrent siblings have finished, view and look-ups are the same."""
    beside = {path for path in scene.ways if scene.beside(path)}
    finished = data.draw(st.sets(st.sampled_from(sorted(beside)))) if beside else set[str]()
    before = set(scene.ways) - beside
    early = seen_from(scene.viewer, before, scene.groups)
    late = seen_from(scene.viewer, before | finished, scene.groups)
    assert dict(early) == dict(late)
    for name in ("a", "ab", "a-b", "b", "a~2", "same", "same/same", "/same", "/a/b"):
        assert early.find(name) == late.find(name)


# -- cases -----------------------------------------------------------------------------------------


SAME = {"same", "sub/same", "sub/inner/same", "sub/only", "top"}
CHECKS = {"sub/check/1/lint", "check/1/lint"}
ROUNDS = {"verify/1/lint", "verify/2/lint"}


@pytest.mark.parametrize(
    ("viewer", "ended", "name", "found"),
    [
        pytest.param("sub/inner/v", SAME, "same", "sub/inner/same", id="its own generator first"),
        pytest.param("sub/inner/v", SAME, "only", "sub/only", id="then the next around it"),
        pytest.param("sub/inner/v", SAME, "top", "top", id="then the outermost"),
        pytest.param("sub/inner/v", SAME, "/same", "same", id="only the outermost if asked so"),
        pytest.param("sub/v", CHECKS, "check/1/lint", "sub/check/1/lint", id="a path as a name"),
        pytest.param("group/v", {"group/plan", "plan"}, "plan", "plan", id="no concurrent sibling"),
        pytest.param("verify/2/fix", ROUNDS, "lint", "verify/2/lint", id="a stage of its round"),
    ],
)
def test_a_name_is_looked_up_from_the_inside_out(
    viewer: str, ended: set[str], name: str, found: str
) -> None:
    """In each generator around the viewer in turn, past what it must not see."""
    result = seen_from(viewer, ended, {"group"}).find(name)
    assert result is not None
    assert result.path == found


def test_a_name_that_nobody_has_finds_nothing() -> None:
    """What is not there is None to a look-up, and a KeyError to an access."""
    view = seen_from("viewer", {"other"})
    assert view.find("missing") is None
    assert view.find("/missing") is None
    with pytest.raises(KeyError, match="missing"):
        view["missing"]


def test_a_hidden_result_is_a_key_error() -> None:
    """An access by full path does not reach a concurrent sibling either."""
    view = seen_from("group/viewer", {"group/other"}, {"group"})
    with pytest.raises(KeyError, match="group/other"):
        view["group/other"]


def test_a_member_sees_its_own_earlier_steps() -> None:
    """The steps of a member's generator see one another, and not those of the next member."""
    view = seen_from("group/1/second", {"group/1/first", "group/2/first"}, {"group"})
    assert set(view) == {"group/1/first"}


def test_a_group_sees_its_members() -> None:
    """The group's own handler sees what its members did."""
    assert set(seen_from("group", {"group/1", "group/2"}, {"group"})) == {"group/1", "group/2"}


def test_a_view_is_live() -> None:
    """A result that comes later is seen by a view that was made before."""
    results: dict[str, StepResult[str]] = {}
    view = VisibleResults(results, set(), "viewer")
    assert dict(view) == {}
    results["step"] = result_of("step")
    assert dict(view) == {"step": result_of("step")}


def test_results_may_arrive_while_a_view_is_read() -> None:
    """A step that ends during an iteration does not break it."""
    results = {"one": result_of("one"), "two": result_of("two")}
    view = VisibleResults(results, set(), "viewer")
    seen = []
    for path in view:
        seen.append(path)
        results[f"{path}-more"] = result_of(f"{path}-more")
    assert seen == ["one", "two"]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a/b", "a/c", "a"),
        ("a/b", "ab/c", ""),
        ("a/b", "a/b/c", "a/b"),
        ("a/b/c", "a/b", "a/b"),
        ("a", "a", "a"),
        ("a~2/b", "a/b", ""),
        ("", "a", ""),
    ],
)
def test_the_common_scope_is_cut_between_parts(one: str, other: str, expected: str) -> None:
    """Paths share whole parts, never the beginning of a name."""
    assert common_scope(one, other) == expected
