"""What the backends that are programs share: starting, watching and reading them."""
