"""The GitHub Copilot CLI."""
