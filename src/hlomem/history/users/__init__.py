"""The order of an instruction's users."""
