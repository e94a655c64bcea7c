"""Reports drawn for a terminal."""
