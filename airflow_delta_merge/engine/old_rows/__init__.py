"""Taking rows out of the files that they are in."""
