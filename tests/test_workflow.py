"""What ``@workflow`` accepts, what it learns of a function, and how a workflow is called."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import FrozenInstanceError
from functools import partial
from typing import Annotated, Any

import msgspec
import pytest

from handrail import (
    DefinitionError,
    InsideEventLoop,
    Steps,
    Workflow,
    WorkflowDefinition,
    WorkflowParameter,
    WorkflowResult,
    WrongUse,
    step,
    workflow,
)


def same(value: Any = None) -> Any:
    """Give the value back."""
    return value


@workflow
def ship(task: str, count: int = 2, *, flag: bool | None = None) -> Steps[str]:
    """Ship a task.

    More about it.
    """
    yield from step("plan").call(same, task)
    for n in range(count):
        yield from step(f"part-{n}").call(same, flag)
    return f"{task}!"


# -- spellings -------------------------------------------------------------------------------------


def test_the_bare_decorator_takes_name_and_description_from_the_function() -> None:
    """`@workflow` names the workflow after its function, and describes it by its first line."""
    assert isinstance(ship, Workflow)
    assert isinstance(ship.definition, WorkflowDefinition)
    assert (ship.definition.name, ship.definition.description) == ("ship", "Ship a task.")


def test_a_name_alone_may_be_given() -> None:
    """`@workflow("name")` names it."""

    @workflow("other name")
    def flow() -> Steps[None]:
        yield from step("a").call(same)

    assert (flow.definition.name, flow.definition.description) == ("other name", "")


def test_name_and_description_may_be_given_by_keyword() -> None:
    """`@workflow(name=..., description=...)` sets both; either may be left out."""

    @workflow(name="n", description="d")
    def both() -> Steps[None]:
        """Not this."""
        yield from step("a").call(same)

    @workflow(description="d")
    def one() -> Steps[None]:
        yield from step("a").call(same)

    assert (both.definition.name, both.definition.description) == ("n", "d")
    assert (one.definition.name, one.definition.description) == ("one", "d")


@pytest.mark.parametrize("name", ["", " ", "a/b", " a", "x" * 121, "a\n", ".", ".."])
def test_a_workflows_name_is_checked(name: str) -> None:
    """A blank name, one with a slash, edge blanks or control characters is refused."""
    with pytest.raises(DefinitionError, match="name"):
        workflow(name)


def test_a_workflow_looks_like_its_function() -> None:
    """Name, docstring and module of the function are the workflow's."""
    assert getattr(ship, "__name__", None) == "ship"
    assert (ship.__doc__ or "").startswith("Ship a task.")
    assert ship.__module__ == __name__
    assert ship.definition.function is getattr(ship, "__wrapped__", None)
    assert repr(ship) == "<workflow 'ship'>"


# -- the signature ---------------------------------------------------------------------------------


def test_the_signature_is_captured() -> None:
    """Each parameter has its name, resolved annotation, default and kind."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    task, count, flag = ship.definition.parameters
    assert all(isinstance(one, WorkflowParameter) for one in (task, count, flag))
    assert (task.name, task.annotation, task.kind, task.required) == ("task", str, either, True)
    assert (count.name, count.annotation, count.default) == ("count", int, 2)
    assert (flag.name, flag.annotation, flag.kind) == ("flag", bool | None, keyword)


def test_no_default_and_a_default_of_none_differ() -> None:
    """`required` is true without a default, and false with `default=None`."""
    required = {one.name: one.required for one in ship.definition.parameters}
    assert required == {"task": True, "count": False, "flag": False}
    assert ship.definition.parameters[2].default is None
    assert ship.definition.parameters[0].default is not None


def test_variable_arguments_are_not_required() -> None:
    """`*args` and `**kwargs` have their kinds and need not be given."""

    @workflow
    def flow(*args: int, **kwargs: str) -> Steps[Any]:
        yield from step("a").call(same)
        return args, kwargs

    kinds = [one.kind.name for one in flow.definition.parameters]
    assert kinds == ["VAR_POSITIONAL", "VAR_KEYWORD"]
    assert not any(one.required for one in flow.definition.parameters)
    assert flow(1, 2, a="b").value == ((1, 2), {"a": "b"})


def test_an_unannotated_parameter_has_no_annotation() -> None:
    """A parameter without an annotation has `inspect.Parameter.empty`."""

    @workflow
    def flow(x, y=1):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # what is tested
        yield from step("a").call(same)

    first, second = flow.definition.parameters
    assert first.annotation is second.annotation is inspect.Parameter.empty


def test_an_annotation_that_cannot_be_resolved_does_not_hide_the_others() -> None:
    """A name that exists for type checkers only leaves the other annotations resolved."""

    @workflow
    def flow(a: int, b: Nowhere) -> Steps[None]:  # type: ignore[name-defined]  # noqa: F821  # what is tested
        yield from step("a").call(same)

    first, second = flow.definition.parameters
    assert first.annotation is int
    assert second.annotation is not inspect.Parameter.empty


def test_definitions_are_frozen() -> None:
    """A definition and its parameters cannot be changed."""
    with pytest.raises(FrozenInstanceError):
        ship.definition.name = "other"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        ship.definition.parameters[0].name = "other"  # type: ignore[misc]


# -- refusals --------------------------------------------------------------------------------------


async def a_coroutine() -> None:
    """Not a workflow."""


async def an_async_generator() -> AsyncIterator[int]:
    """Not a workflow."""
    yield 1


def plain() -> int:
    """Not a workflow."""
    return 1


def named_by_input(number: int) -> Steps[None]:
    """A workflow, if decorated itself."""
    yield from step("a").call(same, number)


class Holder:
    def method(self) -> Steps[None]:
        """Not a workflow."""
        yield from step("a").call(same)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (a_coroutine, r"a_coroutine is async.*`def`.*yield from step"),
        (an_async_generator, r"an_async_generator is async.*`def`"),
        (plain, r"plain yields no step.*yield from step"),
        (lambda: 1, r"yields no step"),
        (Holder, r"generator function"),
        (Holder.method, r"method.*self"),
        (3, r"generator function, got 3"),
        (partial(named_by_input, 1), r"functools\.partial.*Decorate the function itself.*inputs"),
        (ship, r"workflow already"),
    ],
)
def test_only_a_sync_generator_function_is_a_workflow(function: Any, says: str) -> None:
    """Anything else is a TypeError that says what to write instead."""
    with pytest.raises(TypeError, match=says):
        workflow(function)


def test_what_is_refused_bare_is_refused_with_a_name_too() -> None:
    """The named spellings check the function as well."""
    with pytest.raises(TypeError, match="yields no step"):
        workflow("name")(plain)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is async"):
        workflow(description="d")(a_coroutine)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Decorate the function itself"):
        workflow("name")(partial(named_by_input, 1))


def test_two_names_are_refused() -> None:
    """A name by position and one by keyword is a TypeError."""
    both: Callable[..., Any] = workflow
    with pytest.raises(TypeError):
        both("a", name="b")


# -- describe and to_mermaid -----------------------------------------------------------------------


def test_describe_is_json_safe_data() -> None:
    """`describe()` has name, description, parameters and steps, and is plain JSON."""
    data = json.loads(json.dumps(ship.describe(), allow_nan=False))
    assert (data["name"], data["description"]) == ("ship", "Ship a task.")
    task, count, flag = data["parameters"]
    assert (task["name"], task["required"], task["kind"]) == (
        "task",
        True,
        "positional_or_keyword",
    )
    assert "str" in task["annotation"]
    assert (count["default"], count["required"]) == (2, False)
    assert (flag["kind"], flag["default"], flag["required"]) == ("keyword_only", None, False)
    assert [one["path"] for one in data["steps"]] == ["plan", "part-{n}"]


def test_describe_has_what_the_source_shows() -> None:
    """Loops, branches, members and modifiers are data, and what cannot be seen is told."""

    @workflow
    def flow(n: int) -> Steps[Any]:
        yield from step("a").call(same).retry(2)
        for i in range(n):
            if n > 1:
                yield from step(f"b-{i}").parallel(step("c").call(same), step("d").sleep(1))

    data = json.loads(json.dumps(flow.describe(), allow_nan=False))
    assert [(one["path"], one["literal"]) for one in data["steps"]] == [
        ("a", True), ("b-{i}", False), ("b-{i}/c", False), ("b-{i}/d", False)
    ]  # fmt: skip
    first, loop = data["body"]
    assert (first["is"], first["name"], first["verb"]) == ("step", "a", "call")
    assert "retry" in first["modifiers"][0]
    assert (loop["is"], loop["header"]) == ("loop", "for i in range(n)")
    [branch] = loop["nodes"]
    assert (branch["is"], branch["arms"][0]["condition"]) == ("branch", "n > 1")
    [group] = branch["arms"][0]["nodes"]
    assert [one["nodes"][0]["name"] for one in group["parts"]] == ["c", "d"]
    assert data["is_whole"]

    @workflow
    def hidden(name: str) -> Steps[Any]:
        yield from step(name).call(same)

    assert not hidden.describe()["is_whole"]


HOW_OFTEN = msgspec.Meta(ge=1, description="how often")


def test_describe_has_what_an_annotation_says() -> None:
    """In words, or by msgspec's description; other extras are none."""

    @workflow
    def flow(
        a: Annotated[str, "what", 3], b: Annotated[int, 3, HOW_OFTEN] = 1, c: Annotated[int, 3] = 1
    ) -> Steps[None]:
        yield from step("a").call(same)

    parameters = flow.describe()["parameters"]
    assert [one["description"] for one in parameters] == ["what", "how often", ""]


def test_describe_is_json_safe_with_odd_defaults() -> None:
    """A default that is no JSON becomes text or data, and never fails."""

    @workflow
    def flow(
        a: Any = object(),  # noqa: B008  # no JSON, on purpose
        b: set[int] = {1},  # noqa: B006  # as above
        c: float = math.nan,
    ) -> Steps[None]:
        yield from step("a").call(same)

    assert len(json.loads(json.dumps(flow.describe(), allow_nan=False))["parameters"]) == 3


def test_describe_does_without_a_source() -> None:
    """A workflow made where no text is kept is described without its steps."""
    scope: dict[str, Any] = {"step": step, "same": same}
    exec("def made():\n    yield from step('a').call(same)\n", scope)
    data = workflow(scope["made"]).describe()
    assert data["name"] == "made"
    assert (data["body"], data["is_whole"]) == ([], False)
    assert json.dumps(data)


def test_to_mermaid_draws_the_steps_without_running_them() -> None:
    """`to_mermaid()` is a flowchart with the steps, loops included."""
    ran: list[int] = []

    @workflow
    def flow(n: int) -> Steps[None]:
        ran.append(n)
        yield from step("first").call(same)
        for i in range(n):
            yield from step(f"again-{i}").call(same)

    text = flow.to_mermaid()
    assert text.startswith("flowchart")
    assert "first" in text
    assert "again-" in text
    assert ran == []


# -- calls -----------------------------------------------------------------------------------------


def test_a_workflow_is_called_like_its_function() -> None:
    """`ship(...)` runs to the end with a default executor and gives the result."""
    result = ship("fix", flag=True)
    assert isinstance(result, WorkflowResult)
    assert (result.status, result.value, result.workflow_name) == ("succeeded", "fix!", "ship")
    assert [one.path for one in result.step_results] == ["plan", "part-0", "part-1"]


async def test_run_is_the_async_twin() -> None:
    """`await ship.run(...)` gives the same as a sync call."""
    result = await ship.run("fix", 0)
    assert (result.value, len(result.step_results)) == ("fix!", 1)


async def test_a_sync_call_inside_a_loop_names_run() -> None:
    """Inside a running event loop `ship(...)` raises an error that names `.run`."""
    with pytest.raises(InsideEventLoop, match=r"ship\(\.\.\.\).*await ship\.run") as caught:
        ship("fix")
    assert isinstance(caught.value, RuntimeError)


async def test_a_sync_call_from_a_body_names_run_and_subworkflow() -> None:
    """Called from a workflow's body, the error names `.run` and `.subworkflow`, and fails it."""

    @workflow
    def outer() -> Steps[Any]:
        yield from step("a").call(same)
        return ship("x")

    result = await outer.run()
    assert result.status == "failed"
    assert "await ship.run(...), or in a workflow's body, as here: " in (result.error or "")
    assert ".subworkflow(" in (result.error or "")


async def test_a_sync_call_in_a_thread_is_allowed_while_a_loop_runs_elsewhere() -> None:
    """Only a loop in this very thread is in the way: a sync action may call a workflow."""

    @workflow
    def outer() -> Steps[Any]:
        inner = yield from step("a").call(lambda: ship("x", 0))
        return inner.value

    assert (await outer.run()).value == "x!"


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((), {}, "task"),
        (("a", 1, True), {}, "positional"),
        (("a",), {"tusk": 1}, "tusk"),
        (("a",), {"task": "b"}, "task"),
    ],
)
def test_wrong_arguments_are_a_type_error_of_the_call(
    args: tuple[Any, ...], kwargs: dict[str, Any], says: str
) -> None:
    """Arguments that do not fit the signature raise TypeError, naming workflow and parameter."""
    with pytest.raises(TypeError, match=says) as caught:
        ship(*args, **kwargs)
    assert "ship" in str(caught.value)


async def test_wrong_arguments_of_run_are_a_type_error_too() -> None:
    """`ship.run()` with a missing argument raises TypeError before anything runs."""
    with pytest.raises(TypeError, match="task"):
        await ship.run()  # type: ignore[call-arg]


def test_two_calls_share_nothing() -> None:
    """Each call is a run of its own, with an id of its own."""
    first, second = ship("a"), ship("b")
    assert first.run_id != second.run_id
    assert (first.value, second.value) == ("a!", "b!")


def test_name_and_description_may_be_given_by_place() -> None:
    """`@workflow("name", "description")`; anything else in its place is refused."""

    @workflow("ship it", "Ship a task")
    def flow() -> Steps[None]:
        yield from step("a").call(same)

    assert (flow.definition.name, flow.definition.description) == ("ship it", "Ship a task")
    loose: Any = workflow
    for wrong in (("a", 3), (flow, "b")):
        with pytest.raises(WrongUse, match="takes two texts"):
            loose(*wrong)
