"""Steps as data, and the functions and methods that people type to make them."""
