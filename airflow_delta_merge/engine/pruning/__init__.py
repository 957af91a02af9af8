"""Chooses the files and rows of the target that can match."""
