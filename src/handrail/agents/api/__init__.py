"""Model APIs, by way of pydantic-ai."""
