"""Regions of a program computed in pieces, along a dimension that their instructions share."""
