"""Pure functions from a trace to frozen results."""
