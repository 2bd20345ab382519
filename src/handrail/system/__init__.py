"""Processes, clocks and files of the machine, as several adapters need them."""
