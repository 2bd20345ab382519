"""What claude's events are made of: tokens and prices, and how each failure looks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CAPABILITIES = ("interrupt_receipt_v1", "msg_lifecycle_v1")
NO_TOKENS: Mapping[str, Any] = {
    "input_tokens": 0,
    "output_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}
SPARE: Mapping[str, Any] = {
    "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
    "service_tier": "standard",
}
DOLLARS = {"input": 3e-6, "written": 3.75e-6, "read": 0.3e-6, "output": 15e-6}
"""A token's price, as that of claude-sonnet-4-5 was in November 2026."""


def tokens_of(usage: Mapping[str, Any] | None) -> dict[str, int]:
    """The tokens as claude counts them: what came from a cache is no part of the input."""
    if usage is None:
        return dict(NO_TOKENS)
    read, written = usage.get("cached_tokens") or 0, usage.get("cache_write_tokens") or 0
    return {
        "input_tokens": max(0, (usage.get("input_tokens") or 0) - read - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": usage.get("output_tokens") or 0,
    }


def price(usage: Mapping[str, Any] | None) -> float:
    """What it cost: as it says, or by the price of the tokens."""
    if usage is None:
        return 0.0
    if usage.get("cost_usd") is not None:
        return float(usage["cost_usd"])
    tokens = tokens_of(usage)
    return (
        tokens["input_tokens"] * DOLLARS["input"]
        + tokens["cache_creation_input_tokens"] * DOLLARS["written"]
        + tokens["cache_read_input_tokens"] * DOLLARS["read"]
        + tokens["output_tokens"] * DOLLARS["output"]
    )


def model_usage(spent: Mapping[str, Any]) -> dict[str, Any]:
    """One model's entry of ``modelUsage``."""
    tokens = tokens_of(spent)
    return {
        "inputTokens": tokens["input_tokens"],
        "outputTokens": tokens["output_tokens"],
        "cacheReadInputTokens": tokens["cache_read_input_tokens"],
        "cacheCreationInputTokens": tokens["cache_creation_input_tokens"],
        "webSearchRequests": 0,
        "costUSD": spent.get("cost_usd", 0),
        "contextWindow": 200000,
        "maxOutputTokens": 32000,
    }


def _api(
    error: str, status: int | None, kind: str | None, text: str, **more: Any
) -> dict[str, Any]:
    form = {"error": error, "status": status, "type": kind, "text": text}
    return {**form, "terminal_reason": "api_error", **more}


def _ended(subtype: str, terminal_reason: str, text: str) -> dict[str, Any]:
    form = {"error": "unknown", "status": None, "type": None, "text": text}
    return {**form, "subtype": subtype, "terminal_reason": terminal_reason}


FAILED: Mapping[str, dict[str, Any]] = {
    "rate_limit": _api(
        "rate_limit",
        429,
        "rate_limit_error",
        "API Error: Request rejected (429) · This request would exceed your organization's rate "
        "limit of 40,000 input tokens per minute.",
    ),
    "usage_cap": _api("rate_limit", 429, "rate_limit_error", "", api_error="usage_limit_reached"),
    "spending_cap": _api(
        "billing_error", 400, "invalid_request_error", "Credit balance is too low"
    ),
    "context_overflow": _api(
        "invalid_request",
        400,
        "invalid_request_error",
        "Prompt is too long · the request is ~214315 tokens (limit 200000)",
        terminal_reason="prompt_too_long",
    ),
    "auth": _api(
        "authentication_failed",
        401,
        "authentication_error",
        "Invalid API key · Fix external API key",
    ),
    "transient": _api("server_error", 500, "api_error", "API Error: 500 Internal server error."),
    "bad_request": _api(
        "model_not_found",
        404,
        "not_found_error",
        "There's an issue with the selected model. It may not exist or you may not have access "
        "to it.",
    ),
    "output_limit": _api(
        "max_output_tokens",
        None,
        None,
        "API Error: Claude's response exceeded the 32000 output token maximum.",
        api_error="max_output_tokens",
        api_error_params={"cut": "output_limit"},
    ),
    "refusal": _api(
        "invalid_request",
        None,
        None,
        "API Error: Claude Code is unable to respond to this request.",
        stop_reason="refusal",
    ),
    "invalid_output": _ended(
        "error_max_structured_output_retries",
        "structured_output_retry_exhausted",
        "Failed to provide valid structured output after 5 attempts",
    ),
    "max_turns": _ended("error_max_turns", "max_turns", "Reached maximum number of turns (2)"),
}
