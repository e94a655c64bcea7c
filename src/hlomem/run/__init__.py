"""`hlomem run`: runs a command with XLA's dumps enabled, and reports what its programs need."""
