"""How a tree folds until it fits."""

# ruff: noqa: RUF001  # the console's signs are meant

from __future__ import annotations

import pytest

from handrail.model import events as ev
from handrail.record.live_view import LiveRun
from handrail.sinks.console_lines import tree_lines
from handrail.sinks.console_text import text_of
from tests.sinks.story import Story


@pytest.fixture
def tree() -> LiveRun:
    """The tree of a run that has not begun."""
    return LiveRun("ship-1")


@pytest.fixture
def story(tree: LiveRun) -> Story:
    """A run that the tree is told; it has begun."""
    story = Story(tree.apply)
    story.begin()
    return story


def drawn(tree: LiveRun, height: int = 40) -> list[str]:
    """The lines of the tree as text."""
    return [text_of(line) for line in tree_lines(tree, height)]


def members(story: Story, path: str, count: int, first: int = 0) -> None:
    """That many members start, each with one command."""
    for index in range(first, first + count):
        story.member(f"{path}/{index}", index)
        story.start(f"{path}/{index}/read", "command")


def ends(story: Story, path: str, *indices: int, status: str = "succeeded") -> None:
    """These members end, with their command."""
    for index in indices:
        story.end(f"{path}/{index}/read", status)
        story.member_ends(f"{path}/{index}", status, index)


def test_a_small_group_shows_its_members_whole(tree: LiveRun, story: Story) -> None:
    """Up to twelve members stand in order of start, each with its steps."""
    story.group("review", 2)
    members(story, "review", 2)
    ends(story, "review", 1)
    assert drawn(tree)[2:] == [
        "   ├─ ⠋ 0  4.0 s",
        "   │  └─ ⠋ read  command  3.0 s",
        "   └─ ✓ 1  3.0 s",
        "      └─ ✓ read  command  1.0 s",
    ]


def test_a_large_group_shows_a_row_for_twelve(tree: LiveRun, story: Story) -> None:
    """Of a thousand members the failed, the waiting, the running and the latest done have a row."""
    story.group("review", 1000)
    members(story, "review", 905)
    ends(story, "review", *range(900))
    ends(story, "review", 900, status="failed")
    story.ask("review/901/sure?", "Sure?")
    story.end("review/901/read")
    rows = drawn(tree)[2:]
    assert len(rows) == 13
    assert [row[6:].split("  ")[0] for row in rows] == [
        "✗ 900",
        "⏸ 901 › sure?",
        "⠋ 902 › read",
        "⠋ 903 › read",
        "⠋ 904 › read",
        *(f"✓ {index}" for index in (899, 898, 897, 896, 895, 894, 893)),
        "… 893 more done",
    ]


def test_the_rows_of_a_crowd_are_shared_out(tree: LiveRun, story: Story) -> None:
    """Many failures leave room for what runs, and what has no row is counted."""
    story.group("review", 1000)
    members(story, "review", 200)
    ends(story, "review", *range(100), status="failed")
    rows = [row[6:8].strip() for row in drawn(tree)[2:-1]]
    assert (rows.count("✗"), rows.count("⠋")) == (3, 9)
    assert drawn(tree)[-1] == "   └─ … 188 more: 97 failed, 91 running"


def test_a_member_of_a_crowd_says_what_it_is_at(tree: LiveRun, story: Story) -> None:
    """Its one row has the innermost step that runs, and that step's last line."""
    story.group("review", 50)
    members(story, "review", 20)
    story.tell(ev.StepOutput("review/3/read", "stdout", "line 7\n"), after=0)
    assert "   ├─ ⠋ 3 › read  command  17 s  line 7" in drawn(tree)


def test_a_finished_crowd_keeps_its_failures(tree: LiveRun, story: Story) -> None:
    """Once a large group has ended, only what failed has a row."""
    story.group("review", 100)
    members(story, "review", 100)
    ends(story, "review", *range(98))
    ends(story, "review", 98, 99, status="failed")
    story.end("review")
    assert [row.split("  ")[0] for row in drawn(tree)[1:]] == ["└─ ✓ review", "", "", ""]
    assert [row.strip().split("  ")[0] for row in drawn(tree)[2:]] == [
        "├─ ✗ 98",
        "├─ ✗ 99",
        "└─ … 98 more done",
    ]


def test_a_finished_crowd_without_failures_is_one_row(tree: LiveRun, story: Story) -> None:
    """The counts say all there is to say."""
    story.group("review", 100)
    members(story, "review", 100)
    ends(story, "review", *range(100))
    story.end("review")
    assert len(drawn(tree)) == 2
    assert "✓ review  for_each  100 of 100 done" in drawn(tree)[1]


def test_steps_in_a_row_fold_from_the_oldest(tree: LiveRun, story: Story) -> None:
    """A loop of many steps shows the latest, after a count of the earlier ones."""
    for index in range(1000):
        story.run(f"step-{index}")
    rows = drawn(tree, 60)
    assert rows[1] == "├─ … 960 earlier done"
    assert (rows[2][3:13], rows[-1][3:13]) == ("✓ step-960", "✓ step-999")


def test_finished_subtrees_fold_first(tree: LiveRun, story: Story) -> None:
    """When there is no room, what succeeded becomes one row before what failed or runs does."""
    for name in ("one", "two"):
        story.start(name, "subworkflow")
        for index in range(5):
            story.run(f"{name}/s{index}", status="failed" if name == "two" else "succeeded")
        story.end(name, "failed" if name == "two" else "succeeded")
    story.start("three", "subworkflow")
    story.start("three/now")
    assert len(drawn(tree, 20)) == 15
    folded = drawn(tree, 12)
    assert [row.split("  ")[0] for row in folded[:3]] == ["⠋ ship", "├─ ✓ one", "├─ ✗ two"]
    assert len(folded) == 10
    assert [row.strip().split("  ")[0] for row in drawn(tree, 6)] == [
        "⠋ ship",
        "├─ ✓ one",
        "├─ ✗ two",
        "└─ ⠋ three",
        "└─ ⠋ now",
    ]


@pytest.mark.parametrize("height", range(2, 40))
def test_a_tree_never_has_more_lines_than_asked(tree: LiveRun, story: Story, height: int) -> None:
    """Groups in groups, steps and failures fit into any window, and what runs stays on top."""
    for index in range(6):
        story.run(f"s{index}", status="failed" if index % 2 else "succeeded")
    story.group("outer", 30)
    for index in range(15):
        story.member(f"outer/{index}", index)
        story.group(f"outer/{index}/inner", 30)
        members(story, f"outer/{index}/inner", 14)
        ends(story, f"outer/{index}/inner", 1, 2, 3)
    lines = drawn(tree, height)
    assert len(lines) <= height
    assert lines[0].startswith("⠋ ship")


def test_a_window_that_is_too_small_says_so(tree: LiveRun, story: Story) -> None:
    """Even a tree that cannot be folded any more is cut to the window."""
    path = "a"
    for _ in range(10):
        story.start(path, "subworkflow")
        path += "/a"
    assert drawn(tree, 4) == [
        "⠋ ship  10 s  run ship-1",
        "└─ ⠋ a  subworkflow  9.0 s",
        "   └─ ⠋ a  subworkflow  8.0 s",
        "… the window is too small",
    ]
