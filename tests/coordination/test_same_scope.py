"""Which paths are one scope."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from handrail.coordination.hub.frames import Refusal
from handrail.coordination.hub.scopes import normalized


def test_a_linked_folder_is_the_folder(tmp_path: Path) -> None:
    """Also in the middle of a path, by an absolute path, and below a root that is a link."""
    root = tmp_path / "repository"
    (root / "src" / "app").mkdir(parents=True)
    (root / "lib").symlink_to("src")
    (root / "all").symlink_to(".")
    (root / "out").symlink_to(tmp_path)
    linked = tmp_path / "linked"
    linked.symlink_to(root)
    for base in (str(root), str(linked)):
        for path, same in {
            "lib": "src",
            "lib/app/x.py": "src/app/x.py",
            f"{base}/lib/new": "src/new",
            "src/app": "src/app",
            "not/there": "not/there",
            "out/x": "out/x",
        }.items():
            assert normalized([path], [base], os.path.realpath) == (same,)
        assert normalized(["all"], [base], os.path.realpath) == ()
    assert normalized(["lib", "src"], [str(root)], os.path.realpath) == ("src",)


@pytest.mark.parametrize("odd", ["\0", "\u200b", "\u2060", "\ufeff", "\u202e", "\n", "\x9b"])
def test_a_path_has_no_characters_that_nobody_sees(odd: str) -> None:
    """Two paths that look alike would be two scopes."""
    with pytest.raises(Refusal, match="cannot be seen"):
        normalized([f"src{odd}/app"], [])
