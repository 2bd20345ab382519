"""The inputs of a workflow as a person gives them: ``--input name=text``, or a file of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from inspect import Parameter
from pathlib import Path
from types import GenericAlias
from typing import Any, cast

from handrail.cli.exits import Refused
from handrail.errors import did_you_mean
from handrail.model.definition import WorkflowDefinition, WorkflowParameter
from handrail.typed.convert import convert, from_text
from handrail.typed.jsonsafe import short_repr
from handrail.typed.schema import describe_type

Arguments = tuple[list[Any], dict[str, Any]]


def arguments_for(
    definition: WorkflowDefinition,
    typed: Sequence[str],
    values: Mapping[str, Any],
    *,
    form: str = "--input {}=VALUE",
) -> Arguments:
    """The positional and keyword arguments for a workflow; ``form``: how a missing one is given.

    Raises:
        Refused: an input is missing, or as ``given_inputs``.
        InvalidInput: an input is not of its parameter's type.
    """
    given = given_inputs(definition, typed, values)
    _check_complete(definition, given, form)
    return _arrange_arguments(definition, given)


def given_inputs(
    definition: WorkflowDefinition, typed: Sequence[str], values: Mapping[str, Any]
) -> dict[str, Any]:
    """The given inputs by name; typed ones win over the values of a file.

    Raises:
        Refused: an input is unknown, or given twice.
        InvalidInput: an input is not of its parameter's type.
    """
    texts = _pairs(typed)
    named = [*texts, *(name for name in values if name not in texts)]
    for name in named:
        _check_known(definition, name)
    given: dict[str, Any] = {}
    for name in named:
        annotation = _annotation(definition, name)
        if name in texts:
            given[name] = from_text(texts[name], annotation, name=name)
        else:
            given[name] = convert(values[name], annotation, name=name)
    return given


def signature_of(definition: WorkflowDefinition) -> str:
    """The inputs for people: ``task (str), rounds (int = 3)``."""
    return ", ".join(map(_describe_parameter, definition.parameters)) or "none"


def read_file(where: str | Path | None) -> Mapping[str, Any]:
    """The inputs of a JSON or TOML file, of JSON on stdin (``-``), or of JSON as it was typed.

    Raises:
        Refused: the file cannot be read, or is not an object of names.
    """
    import tomllib

    if where is None:
        return {}
    typed = str(where)
    is_json = typed.lstrip().startswith("{")
    file = Path("JSON" if is_json else typed)
    try:
        text = typed if is_json else sys.stdin.read() if typed == "-" else file.read_text("utf-8")
        values = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise Refused(f"inputs {file}", f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        kind = "TOML" if file.suffix == ".toml" else "JSON"
        raise Refused(f"inputs {file}", f"is not {kind}: {error}") from None
    if not isinstance(values, dict):
        raise Refused(f"inputs {file}", f"must be an object of names, got {short_repr(values)}")
    return cast("dict[str, Any]", values)


def pair(word: str, what: str, wanted: str) -> tuple[str, str]:
    """The name and the text of a word that was typed as NAME=TEXT.

    Raises:
        Refused: the word has another form.
    """
    name, equals, text = word.partition("=")
    if not equals or not name.strip():
        raise Refused(what, f"is not {wanted}")
    return name.strip(), text


def _pairs(typed: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in typed:
        name, text = pair(word, f"--input {word!r}", "name=value")
        if name in pairs:
            raise Refused(f"input {name!r}", "was given twice", "Give a list as JSON: '[1, 2]'.")
        pairs[name] = text
    return pairs


def _check_known(definition: WorkflowDefinition, name: str) -> None:
    kinds = {parameter.name: parameter.kind for parameter in definition.parameters}
    if name in kinds and kinds[name] is not Parameter.VAR_KEYWORD:
        return
    if Parameter.VAR_KEYWORD in kinds.values():
        return
    hint = f"{did_you_mean([name], list(kinds))} Its inputs: {signature_of(definition)}.".lstrip()
    raise Refused(f"unknown input {name!r}", f"workflow {definition.name!r} has none", hint)


def _check_complete(definition: WorkflowDefinition, given: Mapping[str, Any], form: str) -> None:
    missing = [one for one in definition.parameters if one.required and one.name not in given]
    if not missing:
        return
    names = ", ".join(_describe_parameter(parameter) for parameter in missing)
    forms = " ".join(form.format(one.name) for one in missing)
    raise Refused(f"workflow {definition.name!r}", f"needs {names}", f"Add {forms}")


def _annotation(definition: WorkflowDefinition, name: str) -> Any:
    """The type of an input; ``*names: T`` takes a list, ``**names: T`` any name of type T."""
    catch_all: Any = Parameter.empty
    for parameter in definition.parameters:
        if parameter.kind is Parameter.VAR_KEYWORD:
            catch_all = parameter.annotation
        elif parameter.name == name:
            is_rest = parameter.kind is Parameter.VAR_POSITIONAL
            return _list_of(parameter) if is_rest else parameter.annotation
    return catch_all


def _list_of(parameter: WorkflowParameter) -> Any:
    if parameter.annotation is Parameter.empty:
        return list
    return GenericAlias(list, (parameter.annotation,))


def _arrange_arguments(definition: WorkflowDefinition, given: dict[str, Any]) -> Arguments:
    """Keyword arguments, and positional ones where Python needs them: ``/``, before ``*names``."""
    args: list[Any] = []
    kwargs = dict(given)
    has_rest = any(
        parameter.kind is Parameter.VAR_POSITIONAL and parameter.name in given
        for parameter in definition.parameters
    )
    for parameter in definition.parameters:
        match parameter.kind:
            case Parameter.VAR_POSITIONAL if parameter.name in given:
                args += kwargs.pop(parameter.name)
            case Parameter.POSITIONAL_ONLY:
                _append(args, kwargs, parameter)
            case Parameter.POSITIONAL_OR_KEYWORD if has_rest:
                _append(args, kwargs, parameter)
            case _:
                pass
    return args, kwargs


def _append(args: list[Any], kwargs: dict[str, Any], parameter: WorkflowParameter) -> None:
    args.append(kwargs.pop(parameter.name, parameter.default))


def _describe_parameter(parameter: WorkflowParameter) -> str:
    kind = "" if parameter.annotation is Parameter.empty else type_name(parameter.annotation)
    if not parameter.required and parameter.default is not Parameter.empty:
        kind = f"{kind} = {short_repr(parameter.default, 40)}".strip()
    kind = ": ".join(filter(None, (kind, parameter.description)))
    return f"{parameter.name} ({kind})" if kind else parameter.name


def type_name(annotation: Any) -> str:
    """A type as people write it."""
    return annotation if isinstance(annotation, str) else describe_type(annotation)
