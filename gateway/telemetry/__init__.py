"""What is told of each request: today one JSON line."""
