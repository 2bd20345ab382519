"""The impure arc: it performs what the core asks for, and writes down what happened."""
