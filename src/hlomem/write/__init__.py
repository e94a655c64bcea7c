"""A plan in XLA's format: as records, or as text directly from the stages."""
