"""The boundary around a launch: what it sees, what it may change, what it may connect to."""
