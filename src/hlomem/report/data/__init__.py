"""Reports as plain data."""
