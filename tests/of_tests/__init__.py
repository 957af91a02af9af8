"""A test of the tests: small faults are put into the package one at a time, and the suite must find each."""
