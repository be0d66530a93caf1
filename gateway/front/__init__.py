"""The client side of HTTP: fast lane, bridge to aiohttp, routes, refusals."""
