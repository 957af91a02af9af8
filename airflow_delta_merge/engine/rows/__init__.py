"""DataFrames of matches, updated rows and new rows. Nothing here writes but `inserts`."""
