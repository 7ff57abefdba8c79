"""Recording: session, phases, launching, the simulated GPU. Never imports analysis."""
