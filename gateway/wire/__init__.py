"""Protocol shapes, sans-IO: bytes in, facts or bytes out."""
