"""Out-of-memory messages, read and explained."""
