"""Model servers: connections to them, what was learnt of them, and which of them is well."""
