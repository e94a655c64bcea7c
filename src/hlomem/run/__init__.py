"""`hlomem run`: a command with XLA's dumps on, and what its programs need when it has ended."""
