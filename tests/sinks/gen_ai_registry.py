"""What the conventions for generative AI know of an agent's span, and of a workflow's.

Source: open-telemetry/semantic-conventions-genai v0.1.0, ``model/gen-ai/registry.yaml`` and
``spans.yaml`` (``gen_ai.invoke_agent.internal``), and ``error.type`` of the general conventions.
Contents of prompts and answers (``Opt-In`` there) are left out: handrail never reports them.
"""

from __future__ import annotations

VERSION = "0.1.0"

TYPES: dict[str, type | tuple[type, ...]] = {
    "error.type": str,
    "gen_ai.agent.description": str,
    "gen_ai.agent.name": str,
    "gen_ai.agent.version": str,
    "gen_ai.conversation.id": str,
    "gen_ai.data_source.id": str,
    "gen_ai.operation.name": str,
    "gen_ai.output.type": str,
    "gen_ai.provider.name": str,
    "gen_ai.request.choice.count": int,
    "gen_ai.request.frequency_penalty": float,
    "gen_ai.request.max_tokens": int,
    "gen_ai.request.model": str,
    "gen_ai.request.presence_penalty": float,
    "gen_ai.request.seed": int,
    "gen_ai.request.stop_sequences": tuple,
    "gen_ai.request.temperature": float,
    "gen_ai.request.top_p": float,
    "gen_ai.response.finish_reasons": tuple,
    "gen_ai.token.type": str,
    "gen_ai.usage.cache_read.input_tokens": int,
    "gen_ai.usage.cache_write.input_tokens": int,
    "gen_ai.usage.input_tokens": int,
    "gen_ai.usage.output_tokens": int,
    "gen_ai.usage.reasoning.output_tokens": int,
}
"""Each attribute, with the type of its value."""

PROVIDERS = {
    *("anthropic", "aws.bedrock", "azure.ai.inference", "azure.ai.openai", "cohere", "deepseek"),
    *("gcp.gemini", "gcp.gen_ai", "gcp.vertex_ai", "groq", "ibm.watsonx.ai", "mistral_ai"),
    *("moonshot_ai", "openai", "perplexity", "x_ai"),
}
"""The values of ``gen_ai.provider.name`` that are prescribed where one applies."""

TOKEN_TYPES = {"input", "output"}
"""The values of ``gen_ai.token.type``."""

OPERATIONS = {"invoke_agent", "invoke_workflow"}
"""The values of ``gen_ai.operation.name`` for these spans."""

REQUIRED = {
    "invoke_agent": {"gen_ai.operation.name", "gen_ai.provider.name"},
    "invoke_workflow": {"gen_ai.operation.name"},
}
"""By operation, what each span has. Of a failed one also ``error.type``."""
