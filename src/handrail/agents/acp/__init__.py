"""Any program that speaks the Agent Client Protocol."""
