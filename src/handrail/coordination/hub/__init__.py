"""The hub without its sockets and its file: takes a message, returns replies and records."""
