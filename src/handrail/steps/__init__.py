"""Steps as data, and the words that people type to make them."""
