"""Which backend and model a run's agents have by default: recorded with it, for its resumes."""

from __future__ import annotations

import os
from collections.abc import Mapping

import attrs

from handrail.cli.driving import Options
from handrail.executor import agent_defaults
from handrail.model.agent_options import NO_OPTIONS

BACKEND, MODEL = "backend", "model"


def agent_labels(options: Options) -> dict[str, str]:
    """What to record: of the command line, the environment, or the project.

    Raises:
        DefinitionError: there is no such backend.
    """
    _check(options)
    said = agent_defaults(options.backend, options.model, NO_OPTIONS)
    found = {BACKEND: said.backend, MODEL: said.options.model}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def as_recorded(options: Options, labels: Mapping[str, str]) -> Options:
    """The options with the backend and model of the run, unless they, or the environment, say
    others.

    Raises:
        DefinitionError: there is no such backend.
    """
    _check(options)
    backend = options.backend or os.environ.get("HANDRAIL_BACKEND") or None
    if backend is not None:
        return options
    return attrs.evolve(
        options,
        backend=labels.get(BACKEND),
        model=options.model or os.environ.get("HANDRAIL_MODEL") or labels.get(MODEL),
    )


def _check(options: Options) -> None:
    """Speak of what was typed, before anything else speaks of what it became."""
    if options.backend is not None:
        from handrail.agents.routes import check_backend

        check_backend(options.backend, "--backend")
