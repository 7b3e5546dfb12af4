"""Where chains are kept between calls: Redis, Valkey, or an embedded Valkey."""
