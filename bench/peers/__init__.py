"""What a step costs in other libraries, each in an environment of its own; run by hand."""
