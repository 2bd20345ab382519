"""What keeps an agent to the files that it may write, and to a working tree of its own."""
