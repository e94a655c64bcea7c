"""A plan as XLA writes it: records, or text straight from the stages."""
