"""The nouns of handrail: frozen data that every other package uses."""
