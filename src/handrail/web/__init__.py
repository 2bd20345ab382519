"""Runs in a browser: the page, its JSON API, and a run as one HTML file."""

from __future__ import annotations

from handrail.web.app import create_app

__all__ = ["create_app"]
