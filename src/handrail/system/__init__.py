"""What several adapters need of the machine they run on."""
