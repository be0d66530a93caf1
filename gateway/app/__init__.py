"""The composition root.

The only place that names implementations, and the life of the process around them.
"""
