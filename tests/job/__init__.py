"""The memory of whole jobs."""
