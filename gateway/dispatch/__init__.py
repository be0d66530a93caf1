"""One live request, from its decoded head to its settled end."""
