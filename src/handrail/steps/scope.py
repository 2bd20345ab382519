"""``scope(name, helper(...))``: the steps of a helper below a path of their own."""

from __future__ import annotations

import inspect
from collections.abc import Generator
from typing import Any, TypeVar

from handrail.errors import WrongUse
from handrail.steps.bodies import ScopedBody
from handrail.steps.step import step
from handrail.steps.verbs import Step, alone

R = TypeVar("R")


def scope(name: str, body: Generator[Step[Any], Any, R] | Step[R], /) -> Step[R]:
    """A step that runs a helper's steps below its own path; its output is what the helper returns.

    So a workflow can call a helper again: its steps have other paths each time.
    ``yield from scope(f"round-{n}", improve(draft))``. An exception in the helper fails the scope.
    A scope cannot be retried, because a generator runs once; a ``subworkflow`` can.

    Raises:
        WrongUse: ``body`` is neither a step nor a generator that has not begun.
    """
    if type(body) is Step:
        body = alone(body)
    if not inspect.isgenerator(body) or inspect.getgeneratorstate(body) != inspect.GEN_CREATED:
        raise WrongUse(
            f"scope({name!r}, ...) takes what a helper gives, a generator that has not begun: "
            f"scope({name!r}, helper(...)). Got {body!r}"
        )
    generator: Any = body
    module = generator.gi_frame.f_globals.get("__name__", "")
    function = f"{module}:{generator.gi_code.co_qualname}"
    return Step(step(name).name, ScopedBody(generator, function))
