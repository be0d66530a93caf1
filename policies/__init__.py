"""What should happen.

Pure: no I/O, no clock, no dice, no loop, no log, no environment; those are arguments.
"""
