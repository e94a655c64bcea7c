"""The skill and the server of the Model Context Protocol, for coding agents."""
