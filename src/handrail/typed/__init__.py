"""Values and their types: converted, described as JSON schema, found in a text, shown as JSON."""
