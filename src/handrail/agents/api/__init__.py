"""Model APIs, through pydantic-ai."""
