"""The names that OpenTelemetry's conventions for generative AI give to a run and to a launch.

Source: open-telemetry/semantic-conventions-genai v0.1.0, the spans ``invoke_agent`` and
``invoke_workflow`` of a framework.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from handrail.model.events import AgentFinished, WorkflowCompleted

OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"
LATEST = "gen_ai_latest_experimental"

_PROVIDERS = {
    "amazon-bedrock": "aws.bedrock",
    "anthropic": "anthropic",
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "claude": "anthropic",
    "codex": "openai",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "gemini": "gcp.gen_ai",  # which of Google's addresses it asks is the login's choice
    "google": "gcp.gen_ai",
    "google-gla": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "gpt": "openai",
    "grok": "x_ai",
    "groq": "groq",
    "mistral": "mistral_ai",
    "moonshotai": "moonshot_ai",
    "openai": "openai",
    "perplexity": "perplexity",
    "xai": "x_ai",
}
"""By what names a provider: a backend's name, a model's prefix or its family."""


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Whether the variable asks for the latest names."""
    return LATEST in (word.strip() for word in environ.get(OPT_IN, "").split(","))


def provider_of(backend: str, model: str | None) -> str:
    """The prescribed name of the provider, or the backend's where there is none.

    A prefix of the model's name counts first (``openai:gpt-5``, ``anthropic/claude-opus-5``), then
    the backend, then the model's family.
    """
    *prefixes, name = re.split("[:/]", model or "")
    for word in (*prefixes[:1], backend, name.partition("-")[0]):
        if word in _PROVIDERS:
            return _PROVIDERS[word]
    return backend


def of_launch(event: AgentFinished, backend: str) -> dict[str, Any]:
    """The attributes that a launch has by the latest names instead of, or beside, its others."""
    facts: dict[str, Any] = {"gen_ai.provider.name": provider_of(backend, event.model)}
    if event.status != "completed":
        facts["error.type"] = event.kind or "_OTHER"
    if event.usage is not None:
        facts["gen_ai.usage.cache_read.input_tokens"] = event.usage.cached_tokens
        facts["gen_ai.usage.cache_write.input_tokens"] = event.usage.cache_write_tokens
        facts["gen_ai.usage.reasoning.output_tokens"] = event.usage.reasoning_tokens
    return facts


def of_run(event: WorkflowCompleted, workflow: str) -> dict[str, Any]:
    """The attributes that the span of a run has by the latest names beside its others."""
    facts = {"gen_ai.operation.name": "invoke_workflow", "gen_ai.agent.name": workflow}
    if event.status != "succeeded":
        facts["error.type"] = event.error_type or event.status
    return facts
