"""Claims on one machine, kept in a file of the repository, for all its working trees."""
