"""Reads HLO text in every form that XLA's parser reads, and writes it as XLA prints it."""
