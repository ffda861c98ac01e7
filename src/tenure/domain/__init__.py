"""The words of the house: values and tables that every other room speaks.

Standard library only, and no I/O of any kind: no clock, no randomness, no logging.  `now` is always an argument.
"""
