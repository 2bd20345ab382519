"""The hub without its sockets and its file: a message in; replies and records out."""
