"""Ports: what handrail needs of the world, as Protocols whose docstring is the contract."""
