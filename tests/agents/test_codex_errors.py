"""What codex's failures are: by their typed error, else by their words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.agents.codex.errors import diagnose
from handrail.agents.transport.failures import kind_of_status
from handrail.agents.transport.loose_json import as_object
from handrail.agents.transport.programs import CODEX
from tests.agents.recorded import NOW

CAP = (
    "You've hit your usage limit. Visit https://example.org/usage to purchase more credits "
    "or try again at 9:43 PM."
)
MESSAGES = [
    ("exceeded retry limit, last status: 429 Too Many Requests", "rate_limit"),
    ("exceeded retry limit, last status: 429 Too Many Requests, request id: r1", "rate_limit"),
    ("rate limit exceeded: Rate limit reached for gpt-5. Please try again in 1.5s.", "rate_limit"),
    ("unexpected status 429 Too Many Requests: You exceeded your current quota", "spending_cap"),
    (CAP, "usage_cap"),
    ("You've hit your usage limit. Try again later.", "usage_cap"),
    ("You've hit your 5-hour usage limit. Try again later.", "usage_cap"),
    ("unexpected status 429 Too Many Requests: The usage limit has been reached", "usage_cap"),
    ("unexpected status 429 Too Many Requests: usage_limit_reached", "usage_cap"),
    ("failed to connect: HTTP error: 403 Forbidden, url: wss://h/v1", "auth"),
    ("Authentication failed. Please run `codex login`.", "auth"),
    ("sandbox denied exec error, exit code: 1", "config"),
    ("model_not_found", "bad_request"),
    ("You've hit your usage limit for gpt-5. Switch to another model now, or later.", "usage_cap"),
    ("You've hit your usage limit. Upgrade to Plus to continue, or try again later.", "usage_cap"),
    (
        "You've hit your usage limit. To get more access now, send a request to your admin.",
        "usage_cap",
    ),
    ("Your workspace is out of credits. Add credits to continue.", "spending_cap"),
    (
        "You hit your spend cap set in your workspace. Increase your spend cap to continue.",
        "spending_cap",
    ),
    ("You hit your spend cap set by the owner of your workspace. Ask an owner.", "spending_cap"),
    ("Quota exceeded. Check your plan and billing details.", "spending_cap"),
    ("To use Codex with your ChatGPT plan, upgrade to Plus: https://x.", "spending_cap"),
    (
        "Codex ran out of room in the model's context window. Start a new thread.",
        "context_overflow",
    ),
    (
        '{"error": {"code": "context_length_exceeded", "message": "too many tokens"}}',
        "context_overflow",
    ),
    (
        "unexpected status 401 Unauthorized: Incorrect API key provided: sk-x., url: http://h/v1",
        "auth",
    ),
    ("unexpected status 403 Forbidden: no", "auth"),
    ("Access blocked by Cloudflare. This happens (status 403 Forbidden)", "auth"),
    ("Missing environment variable: `STUB_KEY`.", "auth"),
    ("Your access token could not be refreshed. Please log out and sign in again.", "auth"),
    ("We're currently experiencing high demand, which may cause temporary errors.", "transient"),
    ("Selected model is at capacity. Please try a different model.", "transient"),
    ("unexpected status 502 Bad Gateway: oops", "transient"),
    ("stream disconnected before completion: idle timeout waiting for SSE", "transient"),
    ("Connection failed: error sending request", "transient"),
    ('{"error": {"type": "invalid_request_error", "message": "Invalid schema."}}', "bad_request"),
    ("unexpected status 404 Not Found: no such model", "bad_request"),
    ("The model `nope` does not exist or you do not have access to it.", "bad_request"),
    ("Incomplete response returned, reason: max_output_tokens", "output_limit"),
    ("Incomplete response returned, reason: content_filter", "refusal"),
    (
        "Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
        "refusal",
    ),
    ("This request was refused by the provider's policy.", "refusal"),
    ("Connection failed: connection refused", "transient"),
    ("internal error; agent loop died unexpectedly", "transient"),
    ("", "transient"),
]


@pytest.mark.parametrize("mark", ["'", "\u2019"])
@pytest.mark.parametrize(("message", "kind"), MESSAGES)
def test_a_message_says_what_failed(message: str, kind: str, mark: str) -> None:
    """Each of codex's messages has its kind, with a plain and with a typographic apostrophe."""
    assert diagnose(message.replace("'", mark), NOW).kind == kind


def test_the_delay_of_a_rate_limit_is_a_time() -> None:
    """A delay in a message counts from now."""
    told = diagnose("rate limit exceeded: try again in 1.5s.", NOW)
    assert (told.kind, told.retry_at) == ("rate_limit", pytest.approx(NOW + 1.5))


def test_a_cap_tells_its_reset() -> None:
    """The clock time in the text of a cap is a time within the day that follows."""
    retry_at = diagnose(CAP, NOW).retry_at
    assert retry_at is not None
    assert NOW < retry_at <= NOW + 86_400


WINDOWS = {
    "primary": {"usedPercent": 100, "resetsAt": NOW + 3_600},
    "secondary": {"usedPercent": 40, "resetsAt": NOW + 90_000},
}
INFOS: list[tuple[Any, str, Any, str, float | None]] = [
    ("contextWindowExceeded", "m", None, "context_overflow", None),
    ("context_window_exceeded", "m", None, "context_overflow", None),
    ("sessionBudgetExceeded", "m", None, "spending_cap", None),
    ("rateLimitExceeded", "try again in 2s", None, "rate_limit", NOW + 2),
    ("usageLimitExceeded", "m", WINDOWS, "usage_cap", NOW + 3_600),
    ("usageLimitExceeded", "m", None, "spending_cap", None),
    ("usageLimitExceeded", "Quota exceeded.", WINDOWS, "spending_cap", None),
    (
        "usageLimitExceeded",
        "You've hit your usage limit. Try again later.",
        None,
        "usage_cap",
        None,
    ),
    ("usageLimitExceeded", "m", WINDOWS | {"spendControlReached": True}, "spending_cap", None),
    (
        "usageLimitExceeded",
        "m",
        WINDOWS | {"rateLimitReachedType": "workspace_owner_credits_depleted"},
        "spending_cap",
        None,
    ),
    (
        "usageLimitExceeded",
        "m",
        WINDOWS | {"rateLimitReachedType": "rate_limit_reached"},
        "usage_cap",
        NOW + 3_600,
    ),
    ("usageLimitExceeded", "m", {"rateLimitReachedType": "rate_limit_reached"}, "usage_cap", None),
    ({"type": "contextWindowExceeded"}, "m", None, "context_overflow", None),
    ("serverOverloaded", "m", None, "transient", None),
    ("internalServerError", "m", None, "transient", None),
    ("unauthorized", "m", None, "auth", None),
    ("cyberPolicy", "m", None, "refusal", None),
    ("badRequest", "m", None, "bad_request", None),
    ("modelNotFound", "m", None, "bad_request", None),
    ("policyCapacityUnavailable", "m", None, "transient", None),
    ("inferenceHookDenied", "m", None, "refusal", None),
    ("tooManyDenials", "m", None, "refusal", None),
    ("badRequest", "input is too long", None, "context_overflow", None),
    ({"responseTooManyFailedAttempts": {"httpStatusCode": 429}}, "m", None, "rate_limit", None),
    ({"httpConnectionFailed": {"httpStatusCode": 401}}, "m", None, "auth", None),
    (
        {"httpConnectionFailed": {"httpStatusCode": 400}},
        "prompt is too long",
        None,
        "context_overflow",
        None,
    ),
    (
        {"httpConnectionFailed": {"httpStatusCode": 429}},
        "You exceeded your current quota",
        None,
        "spending_cap",
        None,
    ),
    ({"responseStreamDisconnected": {"httpStatusCode": None}}, "m", None, "transient", None),
    ({"modelCap": {"model": "g", "resetAfterSeconds": 9}}, "m", None, "rate_limit", NOW + 9),
    ("other", '{"error": {"message": "no"}}', None, "bad_request", None),
    ("somethingNew", "rate limit exceeded", None, "rate_limit", None),
    (None, "Quota exceeded.", None, "spending_cap", None),
    (17, "m", None, "transient", None),
]


@pytest.mark.parametrize(("info", "message", "limits", "kind", "retry_at"), INFOS)
def test_a_typed_error_comes_before_its_message(
    info: Any, message: str, limits: Any, kind: str, retry_at: float | None
) -> None:
    """The type says the kind; the message only what the type leaves open."""
    told = diagnose(message, NOW, info, limits)
    assert (told.kind, told.retry_at) == (kind, retry_at)


def test_two_full_windows_are_both_waited_for() -> None:
    """Where two windows are used up, the later one's reset is the time."""
    full = {name: window | {"usedPercent": 100} for name, window in WINDOWS.items()}
    told = diagnose("m", NOW, "usageLimitExceeded", full)
    assert (told.kind, told.retry_at) == ("usage_cap", NOW + 90_000)


def test_the_status_is_found_in_both_forms() -> None:
    """A status is read from a message and from a typed error."""
    assert diagnose("exceeded retry limit, last status: 503 Service Un", NOW).status == 503
    assert diagnose("no number here: 4291", NOW, "other").status is None
    typed = {"httpConnectionFailed": {"httpStatusCode": 401}}
    assert diagnose("m", NOW, typed).status == 401


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ('{"error": {"type": "invalid_request_error", "message": "Bad schema."}}', "Bad schema."),
        ('{"message": "no such model", "code": 404}', "no such model"),
        ('{"detail": "The model is not supported."}', "The model is not supported."),
        ('{"error": "no"}', '{"error": "no"}'),
        ('{"error": {"message": ', '{"error": {"message": '),
        ("a plain text", "a plain text"),
        ("", "codex says that the turn failed, but not why"),
    ],
)
def test_of_an_apis_json_people_are_shown_the_words(message: str, reason: str) -> None:
    """What stands around the words is left out; a message that has none is shown as it is."""
    assert diagnose(message, NOW).reason == reason


def test_what_a_person_must_mend_has_a_hint() -> None:
    """A failed login says how to log in, a failed server nothing."""
    assert "codex login" in CODEX.hints["auth"]
    assert "transient" not in CODEX.hints


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, None),
        (None, None),
        (400, "bad_request"),
        (401, "auth"),
        (402, "spending_cap"),
        (404, "bad_request"),
        (413, "context_overflow"),
        (429, "rate_limit"),
        (500, "transient"),
        (529, "transient"),
        (1000, None),
    ],
)
def test_a_status_has_a_kind(status: int | None, kind: str | None) -> None:
    """Statuses below 400 and above 599 say nothing."""
    assert kind_of_status(status) == kind


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(info=json_like, message=st.text(), limits=json_like)
def test_any_error_has_some_kind(info: Any, message: str, limits: Any) -> None:
    """No error, however malformed, fails to be classified."""
    assert diagnose(message, NOW, info, as_object(limits)).kind
