"""Independent checks of what the optimiser made."""
