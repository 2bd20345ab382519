"""Values and their types: converting, JSON schemas, finding a value in a text, values as JSON."""
