"""The ground everything stands on: errors, sources of text, sizes, files written whole."""
