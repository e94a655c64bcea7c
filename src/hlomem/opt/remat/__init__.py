"""Values worth computing twice, and what may go to the host."""
