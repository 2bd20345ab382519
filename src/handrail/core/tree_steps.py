"""What a worktree of a step's own is made of: the steps around its body, by name."""

from __future__ import annotations

MAKE, MERGE, REMOVE, LEAVE = "(worktree)", "(merge)", "(remove)", "(leave)"
TREE_STEPS = frozenset({MAKE, MERGE, REMOVE, LEAVE})
