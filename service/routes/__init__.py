"""Routes, one module a resource: parse, call, encode."""
