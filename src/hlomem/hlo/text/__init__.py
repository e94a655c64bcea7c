"""HLO text in, a module out, and back again."""
